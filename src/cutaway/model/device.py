"""The device that a model runs on, and the number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cutaway.errors import ConfigError

FEW = 64  # tokens of a pass; fewer are left to one thread


def usable_device(device: torch.device | str, name: str = "device", known: str = "cpu, cuda, cuda:1") -> torch.device:
    """The device, if torch can compute on it here. On "meta" it cannot, for instance: there are no numbers to read."""
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, NotImplementedError, AssertionError, TypeError, ImportError):
        raise ConfigError(f"{name}={str(device)!r}: torch has no such device to compute on here; {known}") from None


@contextmanager
def threads_for(tokens: int) -> Iterator[None]:
    """Inside this context, a pass over a few tokens runs on one thread, and a longer one on all.

    Threads that share a product wait for each other after every one of a pass's hundreds of products. For a few tokens
    they save little on an idle machine, and on a busy one the waiting can take many times as long as the pass itself.
    """
    before = torch.get_num_threads()
    if tokens >= FEW or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
