"""The processor, the memory, the disk and the GPUs."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cutaway.cli.doctor.row import GIB, Row


def cpu() -> Iterator[Row]:
    import torch

    cores, threads = _cores(), torch.get_num_threads()
    facts = {"cores": cores, "threads": threads}
    found = f"{_cpu_model()}; {cores} cores, torch uses {threads} threads"
    if threads > cores:
        yield Row("CPU", "slow", found, f"export OMP_NUM_THREADS={cores}", facts=facts)
    elif 2 * threads < cores:  # half is right where each core has two hardware threads
        yield Row("CPU", "slow", found, "unset OMP_NUM_THREADS", facts=facts)
    else:
        yield Row("CPU", "ok", found, facts=facts)


def instructions() -> Iterator[Row]:
    import torch

    flags = _cpu_flags()
    sets = {
        "AVX2": "avx2",
        "AVX-512": "avx512f",
        "VNNI": "avx512_vnni avx_vnni",
        "bf16": "avx512_bf16 amx_bf16 bf16",
        "AMX": "amx_tile",
        "dot products": "asimddp",
        "int8 products": "i8mm",
        "SVE": "sve",
    }
    present = [name for name, names in sets.items() if flags & set(names.split())]
    uses = torch.backends.cpu.get_cpu_capability()
    found = f"{', '.join(present) or 'none that we know of'}; torch uses {uses}"
    facts = {"present": present, "torch": uses}
    lowered = os.environ.get("ATEN_CPU_CAPABILITY")
    if lowered:
        yield Row("instructions", "slow", found, f"unset ATEN_CPU_CAPABILITY (it is {lowered})", facts=facts)
    elif platform.machine() in ("x86_64", "AMD64") and uses not in ("AVX2", "AVX512"):
        yield Row("instructions", "slow", f"{found}; products need AVX2 to be fast", facts=facts)
    else:
        yield Row("instructions", "ok", found, facts=facts)


def memory() -> Iterator[Row]:
    total, free = _memory_bytes()
    yield Row(
        "memory",
        "ok" if free >= 2 * GIB else "slow",
        f"{free / GIB:.1f} of {total / GIB:.1f} GiB free",
        "" if free >= 2 * GIB else "close other programs, or keep to small models and batches",
        facts={"total": total, "free": free},
    )


def disk() -> Iterator[Row]:
    free = shutil.disk_usage(".").free
    yield Row(
        "disk",
        "ok" if free >= 2 * GIB else "slow",
        f"{free / GIB:.1f} GiB free in this folder",
        "" if free >= 2 * GIB else "free some: a training run keeps several checkpoints",
        facts={"free": free},
    )


def gpu() -> Iterator[Row]:
    import torch

    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        with torch.cuda.device(index):
            name, bf16 = torch.cuda.get_device_name(), torch.cuda.is_bf16_supported(including_emulation=False)
            free, total = torch.cuda.mem_get_info()
        found = f"{name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free, {'bf16' if bf16 else 'no bf16'}"
        facts = {"name": name, "bf16": bf16, "total": total, "free": free}
        yield Row(f"cuda:{index}", "ok" if bf16 else "slow", found, facts=facts)
    if torch.cuda.is_available():
        return
    if torch.backends.mps.is_available():
        yield Row("mps", "ok", f"Apple GPU, {torch.mps.recommended_max_memory() / GIB:.0f} GiB usable")
    elif not (Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi")):
        yield Row("GPU", "missing", "none; the CPU will do for small models")
    elif torch.version.cuda is None:
        yield Row("GPU", "missing", "there is a driver, but this torch is a CPU build", "install a CUDA build of torch")
    else:
        yield Row("GPU", "missing", "there is a driver, but torch cannot use it", "see what nvidia-smi says")


def _cpu_model() -> str:
    model = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    if model:
        return model[1].strip()
    if sys.platform == "darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    return platform.processor() or platform.machine()


def _cpu_flags() -> set[str]:
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    return set(flags[1].split()) if flags else set()


def _cores() -> int:
    """Cores that this process may use: a container often has fewer than the machine, and torch does not look."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = re.match(r"(\d+) (\d+)", _read("/sys/fs/cgroup/cpu.max"))
    return min(cores, -(-int(quota[1]) // int(quota[2]))) if quota else cores


def _memory_bytes() -> tuple[int, int]:
    """(total, free), a container's limit included."""
    info = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.M))
    if info:
        total, free = (1024 * int(info[key]) for key in ("MemTotal", "MemAvailable"))
    else:
        total = free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and int(limit) < total:
        return int(limit), min(free, int(limit) - int(used or 0))
    return total, free


def _read(path: str) -> str:
    """A file of the system, or nothing where there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
