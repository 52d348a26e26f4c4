"""Two data-parallel and two tensor-parallel pairs of ranks. Layers reduce in the backward pass, before and between buckets."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Copied(torch.autograd.Function):
    """The input of a tensor-parallel layer, whose gradient is the sum over the ranks of a group."""

    @staticmethod
    def forward(context, batch, group):
        context.group = group
        return batch.clone()

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class Model(torch.nn.Module):
    def __init__(self, tensor_parallel):
        super().__init__()
        self.group = tensor_parallel
        # Each rank of a tensor-parallel pair has parameters of its own.
        self.part = dist.get_rank(tensor_parallel)
        self.add_module("part%d" % self.part, torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(6)))

    def forward(self, batch):
        for at, layer in enumerate(getattr(self, "part%d" % self.part)):
            batch = torch.tanh(layer(batch))
            if at % 2:
                batch = Copied.apply(batch, self.group)
        return batch


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tensor_parallel = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    data_parallel = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    model = DistributedDataParallel(Model(tensor_parallel), process_group=data_parallel, bucket_cap_mb=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(int(sys.argv[1])):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256)).square().mean()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print("loss %.17g" % loss.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
