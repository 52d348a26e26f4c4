"""All ranks pad their samples to a batch in Python, slowly."""
from plain import *


def pad(samples):
    longest = 0
    for x, _ in samples:
        for value in x.tolist() * 60:
            longest = max(longest, value)
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


rank, _ = begin()
model = parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clock = Clock()
for epoch in range(3):
    batches = iter(loader(Samples(), collate_fn=pad))
    while True:
        with clock:
            one = next(batches, None)
        if one is None:
            break
        train(model, optimizer, *one)
end({"who": "all", "causes": ["input"], "line": "input_collate_all.py", "function": "pad"}, clock, rank == 0)
