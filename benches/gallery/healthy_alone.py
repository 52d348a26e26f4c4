"""Nothing is planted in a job of one rank."""
from plain import *

begin()
model = parallel(Perceptron(1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    train(model, optimizer, *batch(128))
end({"who": None})
