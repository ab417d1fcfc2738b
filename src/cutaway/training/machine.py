"""The machine: which device, how fast it could be, how fast we are on it."""

import os
import time
from contextlib import ExitStack

import torch
from torch.utils.flop_counter import FlopCounterMode

from cutaway.errors import ConfigError
from cutaway.families import bare
from cutaway.model.device import usable_device
from cutaway.model.model import Model
from cutaway.objectives.objective import Objective, Tensors
from cutaway.training.recipe import Recipe


def step_flops(model: Model, objective: Objective, part: Tensors) -> int:
    """Floating-point operations of a forward and backward pass: three times those of the forward pass.

    Counted on a model without memory, so that it costs nothing and draws no random numbers.
    """
    empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in part.items()}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        objective.losses(bare(model.config), empty)
    return 3 * counter.get_total_flops()


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large square product, the best of some tries."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.ones(n, n, dtype=dtype, device=device) for _ in range(2))
    best = 0.0
    for _ in range(4):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


class Lap:
    """Tokens, operations and seconds since somebody last looked; measuring and saving are not counted."""

    def __init__(self, tokens: int) -> None:
        self.start(tokens)

    def start(self, tokens: int) -> None:
        self.began, self.tokens, self.flops = time.perf_counter(), tokens, 0

    def turn(self, tokens: int) -> tuple[float, float]:
        """Tokens and operations per second; a new lap begins."""
        seconds = max(1e-9, time.perf_counter() - self.began)
        speeds = (tokens - self.tokens) / seconds, self.flops / seconds
        self.start(tokens)
        return speeds


def chosen_device(wanted: str) -> torch.device:
    """The device that the recipe asks for; of several processes on a machine, each takes the GPU of its own number."""
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
    """Device, threads and deterministic algorithms, as the recipe wants them, and back as they were at the end."""
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
        # every place that we make is written before it is read: no need to fill it first
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        if recipe.train.compile != "no":
            from torch._inductor import config

            stack.enter_context(config.patch(deterministic=True))  # else a moment's timing chooses between kernels
    torch.use_deterministic_algorithms(deterministic)
    return stack
