"""What a GPU does, recorded as a CUDA graph: launched at once from then on, instead of kernel by kernel."""

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def record(call: Callable[[], T], pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
    """Records what `call` would do, and does it not yet: the graph, and where its results will be."""
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # garbage that gives memory or events back would spoil the recording,
    try:  # and so would other threads, which bring data, if they were not left out
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = call()
    finally:
        if collects:
            gc.enable()
    return graph, result
