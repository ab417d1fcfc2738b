"""Lines through the real command, in a process of its own: killed, gone on with, and watched from a terminal."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from decoding.test_translate import quick
from tokens.test_tokenizer import byte_level

from cutaway.checkpoints import save
from cutaway.cli.shared.line_commands import n_lines

N = 1200
LINES = "".join(f"{n} ate an apple.\n" if n % 9 else "\n" for n in range(N))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "en-de"
    save(quick(), path, byte_level())
    return path


def started(model: Path, *args: object, **more: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cutaway", "translate", "--model", model, "--beam", 2, "--json", *args]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "100"}
    return subprocess.Popen([*map(str, command)], env=environment, **more)


def seen(terminal: int) -> str:
    said = b""
    try:
        while data := os.read(terminal, 1 << 16):
            said += data
    except OSError:  # the other end is closed
        pass
    return said.decode()


def test_killed_and_resumed_the_lines_are_those_of_an_uninterrupted_run(model, tmp_path):
    source, whole, output = tmp_path / "in", tmp_path / "whole", tmp_path / "out"
    source.write_text(LINES)
    with source.open("rb") as stdin, whole.open("wb") as stdout:
        uninterrupted = started(model, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
        assert uninterrupted.communicate(timeout=300)[1] == b""  # no bar where nobody watches
    files = ["--input", source, "--output", output, "--resume"]
    for wait in (0.0, 0.1):
        before = output.stat().st_size if output.exists() else 0
        process, deadline = started(model, *files), time.monotonic() + 300
        while process.poll() is None and (not output.exists() or output.stat().st_size == before):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    half = output.read_bytes().count(b"\n")
    assert 0 < half < N
    ours, theirs = pty.openpty()
    process = started(model, *files, stderr=theirs)
    os.close(theirs)
    shown = seen(ours)
    os.close(ours)
    assert process.wait(timeout=300) == 0
    assert output.read_bytes() == whole.read_bytes()  # with every digit of the scores
    assert output.read_bytes().count(b"\n") == N
    assert f" of {N:,} lines" in shown
    assert "sentences/s" in shown
    assert "left" in shown


def test_lines_are_counted_where_they_can_be(tmp_path):
    for text, n in ((b"", 0), (b"a", 1), (b"a\n\nb\n", 3), (b"a\n\nb", 3)):
        (tmp_path / "in").write_bytes(text)
        with (tmp_path / "in").open("rb") as file:
            assert n_lines(file) == n
            assert file.read() == text
    assert n_lines(io.BytesIO(b"a\n")) is None
