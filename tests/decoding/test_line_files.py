"""Files and streams: line n answers line n, in constant memory, also after SIGKILL at any instant."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.decoding import line_files as module
from cutaway.decoding.line_files import stream, to_file, windows
from cutaway.errors import InputError


def upper(texts, progress=None):
    return [text.upper() for text in texts]


def streamed(data: bytes) -> bytes:
    sink = io.BytesIO()
    stream(io.BytesIO(data), sink, upper)
    return sink.getvalue()


@given(st.lists(st.text(st.sampled_from("ab \r\té"), max_size=9), max_size=30), st.integers(1, 40))
def test_every_line_is_answered_in_its_place(texts, size):
    data = "".join(text + "\n" for text in texts).encode()
    before = module.FIRST, module.WINDOW
    module.FIRST, module.WINDOW = 1, size  # lines and letters fall across the borders of windows
    try:
        assert list(b"\n".join(b"\n".join(some) for some in windows(io.BytesIO(data))) + b"\n" * bool(texts)) == list(
            data
        )
        # a \r inside of a line is what a model might write: it ends a line for some readers
        expected = "".join(
            module._one_line(t.removesuffix("\r").upper()) + "\r" * t.endswith("\r") + "\n" for t in texts
        )
        assert streamed(data) == expected.encode()
    finally:
        module.FIRST, module.WINDOW = before


def test_empty_lines_and_a_last_line_without_an_end_count():
    assert streamed(b"") == b""
    assert streamed(b"\n\na") == b"\n\nA\n"
    assert streamed(b"a\r\n b \n") == b"A\r\n B \n"


def test_an_answer_is_one_line_whatever_a_model_writes():
    sink = io.BytesIO()
    stream(io.BytesIO(b"a\nb\n"), sink, lambda texts, report: [f"{text}\nx\r\ny" for text in texts])
    assert sink.getvalue() == b"a x y\nb x y\n"


def test_the_mark_at_the_start_of_a_file_is_no_text():
    sink = io.BytesIO()
    stream(io.BytesIO("\ufeffHi\n\ufeffHi\n".encode()), sink, lambda texts, report: [ascii(text) for text in texts])
    assert sink.getvalue() == b"'Hi'\n'\\ufeffHi'\n"


def test_a_pipe_is_answered_before_it_ends():
    read, write = os.pipe()
    os.write(write, b"a\nb")
    with open(read, "rb") as source:
        found = windows(source)
        assert next(found) == [b"a"]
        os.write(write, b"c\n")
        assert next(found) == [b"bc"]
        os.close(write)
        assert list(found) == []


def test_what_is_not_utf_8_is_named_and_all_before_it_answered(tmp_path):
    with pytest.raises(InputError, match=r"a\.txt, line 3: not UTF-8"):
        to_file(io.BytesIO(b"a\nb\n\xff\nc\n"), tmp_path / "out", upper, settings={}, name="a.txt")
    assert (tmp_path / "out").read_bytes() == b"A\nB\n"
    to_file(io.BytesIO(b"a\nb\nx\nc\n"), tmp_path / "out", upper, settings={}, resume=True)
    assert (tmp_path / "out").read_bytes() == b"A\nB\nX\nC\n"


def test_nothing_is_asked_where_no_line_is_text(tmp_path):
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        to_file(io.BytesIO(b"\xff\na\n"), tmp_path / "out", lambda texts, report: _stop(), settings={})


DATA = "".join(f"line {number} {'x' * (number % 7)}\n" for number in range(300)).encode()


@pytest.mark.parametrize("at", [0, 1, 6, 7, 8, 100, 2000, len(DATA) - 1, len(DATA)])
def test_what_is_there_is_kept_and_the_rest_comes(tmp_path, at):
    """A run that was cut off after any byte."""
    output, asked = tmp_path / "out", []
    with pytest.raises(RuntimeError):  # a record is left, as after a kill
        to_file(io.BytesIO(DATA), output, lambda texts, report: _stop(), settings={"beam": 4})
    output.write_bytes(DATA.upper()[:at])

    def counted(texts, report):
        asked.extend(texts)
        return upper(texts)

    new = to_file(io.BytesIO(DATA), output, counted, settings={"beam": 4}, resume=True)
    assert output.read_bytes() == DATA.upper()
    assert new == 300 - DATA[:at].count(b"\n")
    assert len(asked) - new < len(next(windows(io.BytesIO(DATA))))  # a window that was half answered is asked again
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.progress", "out"]
    assert to_file(io.BytesIO(DATA), output, counted, settings={"beam": 4}, resume=True) == 0


def test_a_half_written_line_is_gone_before_the_next_is_asked(tmp_path):
    """It may be longer than what takes its place, or nothing may."""
    output, asked = tmp_path / "out", {"settings": {}, "resume": True}
    to_file(io.BytesIO(b"a\nb\n"), output, upper, settings={})
    output.write_bytes(b"A\nB\nhalf of a long line")
    with pytest.raises(RuntimeError):
        to_file(io.BytesIO(b"a\nb\nc\n"), output, lambda texts, report: _stop(), **asked)
    assert output.read_bytes() == b"A\nB\n"
    output.write_bytes(b"A\nB\nhalf of a long line")
    assert to_file(io.BytesIO(b"a\nb\nc\n"), output, upper, **asked) == 1
    assert output.read_bytes() == b"A\nB\nC\n"
    output.write_bytes(b"A\nB\nC\nhalf")
    assert to_file(io.BytesIO(b"a\nb\nc\n"), output, upper, **asked) == 0
    assert output.read_bytes() == b"A\nB\nC\n"


def _stop():
    raise RuntimeError


def test_another_input_or_other_options_are_refused(tmp_path):
    output, resumed = tmp_path / "out", {"settings": {"beam": 4}, "resume": True}
    calls = iter(range(10))

    def stops(texts, report):
        return _stop() if next(calls) == 2 else upper(texts)

    module.FIRST, before = 64, module.FIRST
    try:
        with pytest.raises(RuntimeError):
            to_file(io.BytesIO(DATA), output, stops, settings={"beam": 4})
        kept = output.read_bytes()
        assert 0 < len(kept) < len(DATA)
        with pytest.raises(InputError, match="--resume"):
            to_file(io.BytesIO(DATA), output, upper, settings={"beam": 4})
        with pytest.raises(InputError, match="beam was 4 and is 5"):
            to_file(io.BytesIO(DATA), output, upper, settings={"beam": 5}, resume=True)
        with pytest.raises(InputError, match=r"not the input that .* was started with"):
            to_file(io.BytesIO(DATA.replace(b"line 1 ", b"line I ")), output, upper, **resumed)
        with pytest.raises(InputError, match="only 1: this is another input"):
            to_file(io.BytesIO(DATA[:8]), output, upper, **resumed)
        assert output.read_bytes() == kept
        assert to_file(io.BytesIO(DATA), output, upper, **resumed) > 0
        assert output.read_bytes() == DATA.upper()
    finally:
        module.FIRST = before


def test_a_finished_file_is_gone_on_with_only_as_it_was_made(tmp_path):
    output, asked, resumed = tmp_path / "out", {"beam": 4}, {"settings": {"beam": 4}, "resume": True}
    to_file(io.BytesIO(DATA), output, upper, settings=asked)
    assert to_file(io.BytesIO(DATA), output, upper, **resumed) == 0
    for data, match in ((DATA.replace(b"299", b"300"), "its first 300 lines differ"),
                        (DATA[:-20], "another input"), (b"", "only 0: this is another input")):  # fmt: skip
        with pytest.raises(InputError, match=match):
            to_file(io.BytesIO(data), output, upper, **resumed)
    with pytest.raises(InputError, match=r"beam was 4 and is 5; use those, or remove .*out"):
        to_file(io.BytesIO(DATA), output, upper, settings={"beam": 5}, resume=True)
    assert output.read_bytes() == DATA.upper()
    assert to_file(io.BytesIO(DATA + b"more\n"), output, upper, **resumed) == 1  # an input that has grown
    assert output.read_bytes() == DATA.upper() + b"MORE\n"
    output.write_bytes(DATA[:50].upper())  # … and an output that has shrunk
    with pytest.raises(InputError, match="out answers 301 lines, but the input has only 300"):
        to_file(io.BytesIO(DATA), output, upper, **resumed)


@pytest.mark.parametrize("record", [None, "{}", '{"lines": "1", "sha256": "", "settings": {}}'])
def test_what_no_record_speaks_for_is_not_gone_on_with(tmp_path, record):
    (tmp_path / "out").write_bytes(b"A\nB\n")
    if record is not None:
        (tmp_path / ".out.progress").write_text(record)
    with pytest.raises(InputError, match=r"remove .*out"):
        to_file(io.BytesIO(b"a\nb\n"), tmp_path / "out", upper, settings={}, resume=True)
    assert (tmp_path / "out").read_bytes() == b"A\nB\n"


def test_the_windows_of_a_resumed_file_are_those_of_an_uninterrupted_one(tmp_path):
    """A score's last digit may depend on what else is in the window: here all of it does."""

    def together(texts, report):
        return [f"{text} {hash(tuple(texts))}" for text in texts]

    def expected(output, **more):
        with (tmp_path / "in").open("rb") as source:
            to_file(source, output, together, settings={}, **more)
        return output.read_bytes()

    module.FIRST, module.WINDOW, before = 64, 256, (module.FIRST, module.WINDOW)
    try:
        (tmp_path / "in").write_bytes(DATA)
        whole = expected(tmp_path / "whole")
        for at in range(0, len(whole), 997):
            output = tmp_path / "out"
            output.write_bytes(whole[:at])
            (tmp_path / ".out.progress").write_text('{"lines": 0, "sha256": "", "settings": {}}')
            assert expected(output, resume=True) == whole
            output.unlink()
    finally:
        module.FIRST, module.WINDOW = before


def test_two_runs_do_not_write_one_file(tmp_path):
    def inner(texts, report):
        with pytest.raises(InputError, match="another run"):
            to_file(io.BytesIO(DATA), tmp_path / "out", upper, settings={}, resume=True)
        return upper(texts)

    to_file(io.BytesIO(b"a\n"), tmp_path / "out", inner, settings={})
    assert (tmp_path / "out").read_bytes() == b"A\n"


def test_the_report_counts_lines():
    told = []

    def halves(texts, report):
        report(1, 2)
        return upper(texts)

    stream(io.BytesIO(b"a\nb\nc\nd\n"), io.BytesIO(), halves, progress=lambda done, total: told.append(done))
    assert told == [0, 2, 4]


@given(st.lists(st.booleans(), max_size=20))
def test_the_first_line_that_is_refused_is_named_and_all_before_it_answered(good):
    def picky(texts, report):
        if "bad" in texts:
            raise InputError(f"text {texts.index('bad') + 1} is bad")
        return upper(texts)

    sink, data = io.BytesIO(), "".join("good\n" if one else "bad\n" for one in good).encode()
    if all(good):
        stream(io.BytesIO(data), sink, picky)
    else:
        with pytest.raises(InputError, match=rf"^a\.txt, line {good.index(False) + 1}: is bad$"):
            stream(io.BytesIO(data), sink, picky, name="a.txt")
    assert sink.getvalue() == b"GOOD\n" * (good.index(False) if False in good else len(good))


@given(st.integers(1, 200), st.data())
def test_a_line_that_the_search_refuses_costs_at_most_three_windows(n, data):
    bad, work = data.draw(st.integers(0, n - 1)), 0

    def late(texts, report):
        nonlocal work
        work += len(texts)
        if str(bad) in texts:
            raise InputError("nothing was found")
        return upper(texts)

    answers, refusal = module._answers_until_refusal(late, [str(i) for i in range(n)], lambda done, total: None)
    assert (len(answers), str(refusal)) == (bad, "nothing was found")
    assert work <= 3 * n + n.bit_length()  # halves of odd windows


SLOW = """
import sys, time
from pathlib import Path
from cutaway.decoding import line_files as lines
lines.FIRST = lines.WINDOW = 256

def answer(texts, report):
    time.sleep(0.003)
    return [text.upper() for text in texts]

class Dripping:
    '''Writes a few bytes at a time, as a full disk or a slow one might: a kill falls into the middle of a line.'''
    def __init__(self, file): self.file = file
    def __getattr__(self, name): return getattr(self.file, name)
    def write(self, data):
        for start in range(0, len(data), 5):
            self.file.write(data[start:start + 5]); self.file.flush()

answered = lines._answered
lines._answered = lambda source, sink, *more: answered(source, Dripping(sink), *more)
with open(sys.argv[1], "rb") as source:
    lines.to_file(source, Path(sys.argv[2]), answer, settings={"beam": 4}, resume=True)
"""


def test_killed_at_any_instant_no_line_is_lost_or_repeated(tmp_path):
    """The process is a real one, and so is kill -9."""
    chance = random.Random(0)
    source, output, script = tmp_path / "in", tmp_path / "out", tmp_path / "slow.py"
    source.write_bytes(DATA * 4)
    script.write_text(SLOW)
    kills = 0
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    for _ in range(40):
        process = subprocess.Popen([sys.executable, str(script), str(source), str(output)], env=environment)
        before = output.stat().st_size if output.exists() else 0
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:  # the import takes long: wait for its first byte
            if output.exists() and output.stat().st_size != before:
                time.sleep(chance.uniform(0, 0.05))
                process.send_signal(signal.SIGKILL)
                process.wait()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
        if kills == 4:
            subprocess.run([sys.executable, str(script), str(source), str(output)], env=environment, check=True)
            break
    assert kills >= 2
    assert output.read_bytes() == source.read_bytes().upper()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.progress", "in", "out", "slow.py"]
