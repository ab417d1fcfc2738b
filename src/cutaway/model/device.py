"""Where a model runs, and on how many cores."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cutaway.errors import ConfigError

FEW = 64  # tokens of a pass: for fewer, one core


def usable_device(device: torch.device | str, name: str = "device", known: str = "cpu, cuda, cuda:1") -> torch.device:
    """A device that numbers can be put on and read from: «meta» has none, and others are in another build of torch."""
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, NotImplementedError, AssertionError, TypeError, ImportError):
        raise ConfigError(f"{name}={str(device)!r}: torch has no such device to compute on here; {known}") from None


@contextmanager
def threads_for(tokens: int) -> Iterator[None]:
    """As many threads as a pass over so many tokens gains from.

    Threads that share a product wait for each other after each of a pass's hundreds of products. For a few tokens that
    saves little on a quiet machine, and costs many times the pass where other programs keep the cores busy.
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
