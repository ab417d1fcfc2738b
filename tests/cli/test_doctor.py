import json
import os
import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from cutaway import cli
from cutaway.cli.doctor import fast_paths, hardware, software, speed
from cutaway.cli.doctor import survey as surveys
from cutaway.cli.doctor.row import Row
from cutaway.model.kernels import cpu


def doctor(*args: str):
    return CliRunner().invoke(cli.app, ["doctor", *args])


def test_doctor_json_holds_rows():
    result = doctor("--json", "--quick")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["broken"] == []
    rows = {row["name"]: row for row in report["rows"]}
    assert {"Python", "torch", "libraries", "CPU", "instructions", "memory", "disk", "attention, cpu"} <= rows.keys()
    assert {row["status"] for row in rows.values()} <= {"ok", "slow", "missing"}
    assert rows["torch"]["status"] == "ok"


def test_no_probe_fails_here():
    rows = [row for _, row in surveys.survey(quick=True, announce=lambda name: None)]
    assert [row for row in rows if re.match(r"\w*(Error|Exception)\b", row.found)] == []


def test_a_probe_that_fails_becomes_a_row(monkeypatch):
    def probe():
        raise OSError("no such thing\nand more")
        yield

    monkeypatch.setitem(surveys.GROUPS, "machine", [probe])
    rows = {row.name: row for _, row in surveys.survey(quick=True, announce=lambda name: None)}
    assert rows["probe"] == Row("probe", "missing", "OSError: no such thing")


def test_what_is_essential_and_broken_gives_exit_code_1(monkeypatch):
    broken = Row("torch", "missing", "2.1; Cutaway needs >=2.11", "pip install 'torch>=2.11'", essential=True)
    monkeypatch.setitem(surveys.GROUPS, "software", [lambda: iter([broken])])
    monkeypatch.setattr(surveys, "_name", lambda probe: "torch")
    result = doctor("--quick")
    assert result.exit_code == 1
    assert "→ pip install 'torch>=2.11'" in result.stdout
    assert "broken: torch" in result.stdout
    assert "memory" not in result.stdout


def test_a_missing_extra_names_its_fix(monkeypatch):
    monkeypatch.setattr(software, "_version", lambda name: None if name == "gguf" else "1.0")
    row = next(row for row in software.extras() if row.name == "extra gguf")
    assert (row.status, row.broken, row.fix) == ("missing", False, "make setup")


def test_an_old_torch_is_broken(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu128")
    (row,) = software.torch_()
    assert row.broken
    assert row.fix == "pip install 'torch>=2.11'"


def test_a_container_limits_cores_and_memory(monkeypatch):
    files = {
        "/sys/fs/cgroup/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/memory.max": "1073741824\n",
        "/sys/fs/cgroup/memory.current": "73741824\n",
        "/proc/meminfo": "MemTotal:       24684100 kB\nMemAvailable:   24076100 kB\n",
    }
    monkeypatch.setattr(hardware, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)
    assert hardware._cores() == 2
    assert hardware._memory_bytes() == (1073741824, 1000000000)


def test_more_threads_than_cores_is_slow(monkeypatch):
    monkeypatch.setattr(hardware, "_cores", lambda: 2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    (row,) = hardware.cpu()
    assert (row.status, row.fix) == ("slow", "export OMP_NUM_THREADS=2")


def test_speeds_are_measured():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        rows = [*speed.products(), *speed.copy()]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [row.name for row in rows] == ["fp32 products", "bf16 products", "int8 products", "memory copy"]
    assert all(value > 0 for row in rows for value in row.facts.values())


def test_our_kernels_are_there_or_it_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "supported", lambda: False)
    assert "AVX-512" in next(fast_paths.kernels()).found
    monkeypatch.setattr(cpu, "supported", lambda: True)
    monkeypatch.setattr(cpu, "library", object)
    assert next(fast_paths.kernels()).status == "ok"
    monkeypatch.setattr(cpu, "library", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    (row,) = fast_paths.kernels()
    assert row.status == "slow"
    assert "no-such-compiler is not installed" in row.found
    monkeypatch.setenv("CUTAWAY_KERNELS", "0")
    assert next(fast_paths.kernels()).fix == "unset CUTAWAY_KERNELS"


def test_a_broken_compiler_is_told_from_a_missing_one(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.platform", "linux")
    assert fast_paths.compile_fix("InvalidCxxCompiler") == "install a C++ compiler: apt install g++"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/g++")
    assert "python3-dev" in fast_paths.compile_fix("fatal error: Python.h: No such file or directory")
    assert fast_paths.compile_fix("Traceback\n  File x\nValueError: odd\n") == "torch says: ValueError: odd"


@pytest.mark.parametrize("width", ["80", "120"])
def test_piped_output_has_no_colours_and_keeps_the_width(width):
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", "doctor", "--quick"]
    env = {**os.environ, "COLUMNS": width}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert ran.stderr == ""
    assert "\x1b" not in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= int(width)
