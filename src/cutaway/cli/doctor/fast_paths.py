"""Fused attention and torch.compile: what makes a model fast, where it works."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator

from cutaway.cli.doctor.row import Row, first_line

COMPILE_SECONDS = 120

_PROGRAM = """
import sys, time, torch
x = torch.ones(64, 64, device=sys.argv[1])
start = time.perf_counter()
torch.compile(lambda x: torch.softmax(x, -1) + 1)(x)
print(time.perf_counter() - start)
"""


def attention() -> Iterator[Row]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    kernels = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    for device in _devices():
        q = torch.ones(1, 4, 128, 64, device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)
        works = []
        for name, kernel in kernels.items():
            try:
                with warnings.catch_warnings(action="ignore"), sdpa_kernel(kernel):
                    scaled_dot_product_attention(q, q, q, is_causal=True)
                works.append(name)
            except RuntimeError:  # torch offers no way to ask beforehand
                pass
        found = f"fused: {', '.join(works)}" if works else "not fused: all scores are kept in memory"
        yield Row(f"attention, {device}", "ok" if works else "slow", found, facts={"fused": works})


def kernels() -> Iterator[Row]:
    """Our own kernels, for decoding on a CPU."""
    from cutaway.model.kernels import cpu

    name = "kernels, cpu"
    if not cpu.supported():
        yield Row(name, "slow", "ours need AVX-512 with VNNI; PyTorch's are used")
    elif os.environ.get("CUTAWAY_KERNELS") == "0":
        yield Row(name, "slow", "turned off; PyTorch's are used", "unset CUTAWAY_KERNELS")
    elif cpu.library() is None:
        yield Row(name, "slow", f"{_reason()}; PyTorch's are used", compile_fix(""))
    else:
        yield Row(name, "ok", "our own, for 8-bit products, attention and beams")


def _reason() -> str:
    from cutaway.model.kernels import cpu

    try:
        cpu.compiled(cpu.cache_folder())
    except cpu.UNAVAILABLE as error:
        return first_line(error)
    return "the compiled file is damaged"


def compile_() -> Iterator[Row]:
    """Compiles in a process of its own, because a broken tool chain may hang or crash."""
    for device in _devices():
        name = f"compile, {device}"
        with tempfile.TemporaryDirectory() as cache:  # a warm cache would hide a missing compiler
            try:
                ran = subprocess.run(
                    [sys.executable, "-P", "-c", _PROGRAM, device],
                    env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_SECONDS,
                )
            except subprocess.TimeoutExpired:
                yield Row(
                    name, "missing", f"torch.compile did not finish in {COMPILE_SECONDS} s; models run uncompiled"
                )
                continue
        if ran.returncode == 0:
            seconds = float(ran.stdout)
            found = f"torch.compile works; a small function took {seconds:.0f} s"
            yield Row(name, "ok", found, facts={"seconds": seconds})
        else:
            yield Row(name, "missing", "torch.compile fails; models run uncompiled", compile_fix(ran.stderr))


def compile_fix(log: str) -> str:
    """What to do about the error that ends this log."""
    if not any(map(shutil.which, [os.environ.get("CXX", "g++"), "clang++"])):
        return "xcode-select --install" if sys.platform == "darwin" else "install a C++ compiler: apt install g++"
    if "Python.h" in log:
        return "install Python's headers: apt install python3-dev"
    errors = re.findall(r"^\S*(?:Error|error|Exception)\b.*$", log, re.M)
    return f"torch says: {errors[-1][:200]}" if errors else "no message; try a small torch.compile by hand"


def _devices() -> list[str]:
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
