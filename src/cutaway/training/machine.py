"""The machine of a run: its device, its threads, deterministic algorithms."""

import os
from contextlib import ExitStack

import torch

from cutaway.errors import ConfigError
from cutaway.model.device import usable_device
from cutaway.training.recipe import Recipe


def choose_device(wanted: str) -> torch.device:
    """The device of a recipe; of several processes on a machine, each takes the GPU with its number."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if not wanted.startswith("cuda"):
        return usable_device(wanted, "train.device", "auto, cpu, cuda, cuda:1")
    if not torch.cuda.is_available():
        raise ConfigError(f"train.device={wanted!r}, but torch finds no GPU here: `cutaway doctor` says more")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return torch.device(wanted)
    number, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if wanted != "cuda":
        raise ConfigError(f"train.device={wanted!r} is one GPU for several processes: with cuda each takes its own")
    if number >= there:
        raise ConfigError(
            f"no GPU is left for process {number} of this machine: start at most {there}, one for each GPU"
        )
    return torch.device("cuda", number)


def machine_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    n = torch.get_num_threads()
    return f"{n} CPU thread{'' if n == 1 else 's'}"


def settings(recipe: Recipe, device: torch.device) -> ExitStack:
    """Sets device, threads and deterministic algorithms for a run; they are restored at the end."""
    stack = ExitStack()
    if device.type == "cuda":
        stack.enter_context(torch.cuda.device(device))
    if recipe.train.threads is not None:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(recipe.train.threads)
    deterministic = device.type == "cpu" if recipe.train.deterministic is None else recipe.train.deterministic
    before = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    stack.callback(torch.use_deterministic_algorithms, before)
    stack.callback(setattr, torch.utils.deterministic, "fill_uninitialized_memory", filled)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # all our memory is written before it is read: filling it first is not needed
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if recipe.train.compile != "no":
            from torch._inductor import config

            stack.enter_context(config.patch(deterministic=True))  # otherwise kernels are chosen by timing
    torch.use_deterministic_algorithms(deterministic)
    return stack
