"""CUDA graphs: the kernels of a call are recorded, and then launched all at once instead of one by one."""

import gc
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def record(call: Callable[[], T], pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
    """Records the kernels of `call` without running them: the graph, and the tensors that will hold its results."""
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # garbage that frees memory or events would break the recording,
    try:  # and so would the threads that load data, without the mode "thread_local"
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = call()
    finally:
        if collects:
            gc.enable()
    return graph, result
