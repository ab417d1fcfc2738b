"""Lines through the real command, in a process of its own: killed, gone on with, and watched from a terminal."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch
from helpers.classifiers import classifier, wordpiece
from helpers.masked_models import masked
from helpers.masked_models import wordpiece as words_to_fill
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from typer.testing import CliRunner, Result

from cutaway import cli
from cutaway.checkpoints import save
from cutaway.cli.shared.line_commands import fingerprint, n_lines
from cutaway.cli.shared.options import with_fields
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

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


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["in", "other/../in", "link"])
def test_a_file_that_is_read_is_not_written(name: str, model: Path, tmp_path: Path):
    (tmp_path / "in").write_text("Hi\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    files = ["--input", tmp_path / "in", "--output", tmp_path / name, "--resume"]
    refused = CliRunner().invoke(cli.app, ["translate", "--model", *map(str, [model, *files])])
    assert refused.exit_code == 2
    assert "in is read and written: give another --output" in refused.stderr
    assert (tmp_path / "in").read_text() == "Hi\n"


LIKE = ["a man sleeps", "he is awake"]
MODELS: dict[str, tuple[Callable[[], Model], Callable[[], Tokenizer], list[str]]] = {
    "embed": (lambda: tiny("bert", task="hidden", dtype=torch.float32), wordpiece, LIKE),
    "classify": (lambda: classifier(dtype=torch.float32), wordpiece, LIKE),
    "fill": (lambda: masked(dtype=torch.float32), words_to_fill, ["the [MASK] barked .", "no one saw the ___"]),
    "translate": (quick, byte_level, ["Hi", "Yes"]),
}
CHANGED: dict[str, dict[str, list[object]]] = {
    "embed": {"pool": ["--pool", "first"], "cut": ["--cut", 5], "precision": ["--precision", "bf16"],
              "json": ["--json"]},
    "classify": {"cut": ["--cut", 5], "precision": ["--precision", "bf16"], "json": ["--json"]},
    "fill": {"k": ["--k", 3], "precision": ["--precision", "bf16"], "json": ["--json"]},
    "translate": {"beam": ["--beam", 3], "length_penalty": ["--length-penalty", 0.5], "prune": ["--prune", 2],
                  "n_best": ["--nbest", 2], "aligned": ["--align"], "prefix": ["--prefix", "the"],
                  "terms": ["--term", "apple=fox"], "split": ["--whole"], "scores": ["--scores"],
                  "precision": ["--precision", "bf16"], "json": ["--json"]},
}  # fmt: skip
NOT_ANSWERS = {"model", "texts", "input", "output", "resume", "out", "near", "analogy", "at", "force"}
NAMES = {"as_json": "json", "align": "aligned", "term": "terms"}


@pytest.mark.parametrize("command", CHANGED)
def test_lines_go_on_only_as_they_were_begun(command: str, tmp_path: Path):
    """A file in which some lines were answered in one way and some in another would look like one."""
    made, tokenizer, lines = MODELS[command]
    save(made(), tmp_path / "model", tokenizer())
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--resume"]

    def ended(*more: object, model: str = "model") -> Result:
        words = [command, "--model", tmp_path / model, *files, *more]
        return CliRunner().invoke(cli.app, list(map(str, words)))

    assert ended().exit_code == 0
    whole = (tmp_path / "out").read_bytes()
    for name, change in CHANGED[command].items():
        refused = ended(*change)
        said = f"{name} was" in refused.stderr.replace("-", "_")
        assert (refused.exit_code, said) == (2, True), (name, refused.output)
    save(made(), tmp_path / "another", tokenizer())
    assert "model was" in ended(model="another").stderr
    assert (tmp_path / "out").read_bytes() == whole
    assert ended().exit_code == 0


@pytest.mark.parametrize("command", CHANGED)
def test_every_option_that_changes_an_answer_is_among_the_cases(command: str):
    function = with_fields(getattr(import_module(f"cutaway.cli.{command}"), command))
    options = {NAMES.get(name, name) for name in signature(function).parameters if name not in NOT_ANSWERS}
    if command == "embed":
        options -= {"k"}  # of --near
    assert options - {"to"} == set(CHANGED[command])


FILES = ["config.json", "model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json",
         "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt", "recipe.toml"]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_changes_an_answer_is_part_of_which_model_it_is(name: str, tmp_path: Path):
    for other in FILES:
        (tmp_path / other).write_text("one")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "README.md").write_text("a card")
    (tmp_path / "certificate.json").write_text("{}")
    assert fingerprint(tmp_path) == before
    (tmp_path / name).write_text("more than one")
    assert fingerprint(tmp_path)["files"] != before["files"]
    (tmp_path / name).write_text("one")
    os.utime(tmp_path / name, ns=(1, 1))  # as long, and yet written anew
    again = fingerprint(tmp_path)
    assert again["files"] != before["files"]
    (tmp_path / name).unlink()
    assert fingerprint(tmp_path)["files"] not in (before["files"], again["files"])
    assert fingerprint(tmp_path)["model"] == before["model"] == str(tmp_path)
