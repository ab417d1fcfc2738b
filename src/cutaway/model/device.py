"""Where a model runs."""

import torch

from cutaway.errors import ConfigError


def usable_device(device: torch.device | str, name: str = "device", known: str = "cpu, cuda, cuda:1") -> torch.device:
    """A device that numbers can be put on and read from: «meta» has none, and others are in another build of torch."""
    try:
        torch.zeros(1, device=device).item()
        return torch.device(device)
    except (RuntimeError, NotImplementedError, AssertionError, TypeError, ImportError):
        raise ConfigError(f"{name}={str(device)!r}: torch has no such device to compute on here; {known}") from None
