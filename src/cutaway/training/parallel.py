"""Several processes, one step: each takes some parts of the batch, and the gradients are summed.

The loss of a part is divided by the number of targets of the *whole* step, so the sum is the gradient of the step.
`torchrun --nproc-per-node 2 -m cutaway train …` starts two processes; of several GPUs, each process uses one.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together; by default this one alone."""

    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def add_up(self, parameters: Sequence[nn.Parameter], terms: Tensor) -> None:
        """Every process gets the sum of all gradients and of the loss's terms."""
        if self.world == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # no part of this process reached it, but another's may
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None] + [terms])
        dist.all_reduce(flat)
        at = 0
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()
        terms.copy_(flat[at:])

    def same_start(self, model: nn.Module) -> None:
        """Every process begins with the weights of the first."""
        if self.world > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    def agree(self, wanted: bool, device: torch.device) -> bool:
        """Whether any process wants it."""
        votes = torch.tensor(float(wanted), device=device)
        if self.world > 1:
            dist.all_reduce(votes)
        return bool(votes > 0)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def leads() -> bool:
    """Whether this process is the first, or the only one."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or int(os.environ["RANK"]) == 0


def join_group(device: torch.device) -> ProcessGroup:
    """The group that torchrun started, or this process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ProcessGroup()
    if not dist.is_initialized():
        if device.type == "cuda":
            dist.init_process_group("nccl", device_id=device)
        else:
            dist.init_process_group("gloo")
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


def leave_group() -> None:
    """For a process that ends; one that trains again stays in its group."""
    if dist.is_initialized():
        dist.destroy_process_group()
