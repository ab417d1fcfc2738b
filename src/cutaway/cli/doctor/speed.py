"""How fast this machine is, measured in about a second."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from cutaway.cli.doctor.row import Row


def products() -> Iterator[Row]:
    """Matrix products. The types are compared on one thread, since several threads may get in each other's way."""
    import torch

    n, threads = 512, torch.get_num_threads()
    fp32, bf16 = torch.randn(n, n), torch.randn(n, n).bfloat16()
    int8 = torch.randint(-64, 64, (n, n), dtype=torch.int8)
    together = _giga(n, torch.matmul, fp32, fp32)
    torch.set_num_threads(1)
    try:
        alone = _giga(n, torch.matmul, fp32, fp32)
        ratios = {
            "bf16": _giga(n, torch.matmul, bf16, bf16) / alone,
            "int8": _giga(n, torch._int_mm, int8, int8) / alone,
        }
    finally:
        torch.set_num_threads(threads)

    found = f"{together:.0f} GFLOP/s on {threads} threads, {alone:.0f} on one"
    facts = {"GFLOP/s": together, "GFLOP/s on one thread": alone}
    if threads > 1 and together < alone:
        # Seen beside one busy process: 12–22 GFLOP/s in some windows instead of 200, none with threads bound to cores.
        fix = "close other programs, or try export OMP_PROC_BIND=true: threads wait for each other"
        yield Row("fp32 products", "slow", found, fix, facts=facts)
    else:
        yield Row("fp32 products", "ok", found, facts=facts)
    for kind, ratio in ratios.items():
        fix = "" if ratio >= 1 else "stay with fp32 on this CPU"
        yield Row(f"{kind} products", "slow" if fix else "ok", f"{ratio:.1f} × fp32", fix, facts={"× fp32": ratio})


def copy() -> Iterator[Row]:
    import torch

    source = torch.ones(2**25)  # 128 MiB, more than most caches hold
    speed = 2 * source.nbytes / _best_time(torch.empty_like(source).copy_, source) / 1e9
    fix = "" if speed >= 5 else "close other programs: generation runs at the speed of memory"
    yield Row("memory copy", "slow" if fix else "ok", f"{speed:.0f} GB/s, read + written", fix, facts={"GB/s": speed})


def gpu() -> Iterator[Row]:
    import torch

    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        n, device = 8192, f"cuda:{index}"
        matrix = torch.randn(n, n, dtype=torch.bfloat16, device=device)
        target = torch.empty_like(matrix)
        flops = _giga(n, torch.matmul, matrix, matrix) / 1e3
        copied = 2 * matrix.nbytes / _best_time(target.copy_, matrix) / 1e12
        found = f"bf16 products {flops:.0f} TFLOP/s, copy {copied:.1f} TB/s, read + written"
        yield Row(device, "ok", found, facts={"TFLOP/s": flops, "TB/s": copied})


def _giga(n: int, multiply: Callable[..., Any], *matrices: Any) -> float:
    return 2 * n**3 / _best_time(multiply, *matrices) / 1e9


def _best_time(work: Callable[..., Any], *tensors: Any) -> float:
    """The best time within a fifth of a second: other programs can only make it longer."""
    import torch

    def run() -> float:
        start = time.perf_counter()
        work(*tensors)
        if tensors[0].is_cuda:
            torch.cuda.synchronize(tensors[0].device)
        return time.perf_counter() - start

    run()  # the first pays for set-up
    end = time.perf_counter() + 0.2
    best = run()
    while time.perf_counter() < end:
        best = min(best, run())
    return best
