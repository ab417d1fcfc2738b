"""The command line: what it offers is frozen here, and how it fails."""

import os
import subprocess
import sys
from dataclasses import fields
from enum import Enum
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from typer.testing import CliRunner

from cutaway import cli
from cutaway.arguments import options_in
from cutaway.cli.shared.options import with_fields

OFFERED = {
    "": ["--debug", "--help", "--version"],
    "chomsky": [
        "--examples",
        "--force",
        "--help",
        "--json",
        "--language",
        "--length",
        "--minutes",
        "--model",
        "--out",
        "--seed",
        "--steps",
        "--words",
    ],
    "circuit": [
        "--edges",
        "--force",
        "--help",
        "--json",
        "--limit",
        "--out",
        "--over-training",
        "--preset",
        "--prompts",
        "--size",
        "--test",
        "--to",
    ],
    "classify": ["--cut", "--help", "--input", "--json", "--model", "--output", "--precision", "--resume"],
    "compare": ["--help", "--json", "--minutes", "--out", "--resume", "--seed", "--set", "--start", "--steps"],
    "demo": ["--help", "--json", "--reverse", "--steps"],
    "describe": [
        "--batch",
        "--depth",
        "--dtype",
        "--help",
        "--json",
        "--length",
        "--set",
        "--source-length",
    ],
    "doctor": ["--help", "--json", "--quick"],
    "embed": [
        "--analogy",
        "--at",
        "--cut",
        "--force",
        "--help",
        "--input",
        "--json",
        "--k",
        "--model",
        "--near",
        "--out",
        "--output",
        "--pool",
        "--precision",
        "--resume",
    ],
    "evaluate": [
        "--at",
        "--bad-column",
        "--beam",
        "--before",
        "--context",
        "--device",
        "--dtype",
        "--good-column",
        "--header",
        "--help",
        "--json",
        "--label-column",
        "--length-penalty",
        "--limit",
        "--no-start",
        "--precision",
        "--prune",
        "--resamples",
        "--second-column",
        "--seed",
        "--source-column",
        "--split",
        "--start",
        "--stride",
        "--target-column",
        "--text-column",
        "--to",
        "--vocab",
    ],
    "export": ["--dtype", "--force", "--help", "--json", "--no-tokenizer", "--quantization", "--to"],
    "fill": ["--help", "--input", "--json", "--k", "--model", "--output", "--precision", "--resume"],
    "generate": [
        "--allow",
        "--bad-words",
        "--beam",
        "--diversity",
        "--draft",
        "--frequency-penalty",
        "--groups",
        "--help",
        "--json",
        "--max-tokens",
        "--min-p",
        "--min-tokens",
        "--model",
        "--n-best",
        "--nbest",
        "--no-repeat-ngram",
        "--precision",
        "--presence-penalty",
        "--prune",
        "--repetition-penalty",
        "--seed",
        "--stop",
        "--temperature",
        "--top-k",
        "--top-p",
    ],
    "import": ["--dtype", "--force", "--help", "--json", "--no-tokenizer"],
    "inspect": [
        "--force",
        "--head",
        "--help",
        "--json",
        "--k",
        "--layer",
        "--method",
        "--out",
        "--show",
        "--steps",
        "--target",
        "--to",
        "--versus",
        "--whole",
    ],
    "lens": [
        "--follow",
        "--force",
        "--help",
        "--json",
        "--out",
        "--steps",
        "--stream",
        "--target",
        "--to",
        "--top",
        "--tune",
        "--tuned",
    ],
    "models": ["--help", "--json"],
    "ngram": [
        "--classes",
        "--force",
        "--help",
        "--json",
        "--max-tokens",
        "--mix",
        "--most",
        "--order",
        "--out",
        "--seed",
        "--smoothing",
        "--split",
        "--start",
        "--test",
        "--unit",
    ],
    "pack": ["--force", "--help", "--json", "--no-tokenizer", "--shard-size", "--store"],
    "patch": [
        "--ablate",
        "--fast",
        "--force",
        "--help",
        "--json",
        "--layers",
        "--out",
        "--over",
        "--right",
        "--stream",
        "--target",
        "--to",
        "--wrong",
    ],
    "plot": ["--force", "--help", "--json", "--metric", "--out"],
    "runs": ["--help", "--json"],
    "serve": [
        "--allow-host",
        "--allow-origin",
        "--body-seconds",
        "--check",
        "--drain-seconds",
        "--help",
        "--host",
        "--json",
        "--max-body",
        "--max-seconds",
        "--max-texts",
        "--max-tokens",
        "--max-waiting",
        "--memory",
        "--ping-seconds",
        "--port",
        "--precision",
        "--threads",
    ],
    "shannon": [
        "--answers",
        "--force",
        "--game",
        "--help",
        "--json",
        "--known",
        "--letters",
        "--model",
        "--out",
        "--play",
        "--samples",
        "--seed",
        "--train",
    ],
    "tokenizer show": ["--help", "--json", "--special"],
    "tokenizer train": [
        "--force",
        "--help",
        "--json",
        "--kind",
        "--lowercase",
        "--mask",
        "--min-frequency",
        "--out",
        "--tags",
        "--vocab",
    ],
    "train": ["--deterministic", "--help", "--json", "--out", "--resume", "--set", "--tensorboard"],
    "translate": [
        "--align",
        "--beam",
        "--help",
        "--input",
        "--json",
        "--length-penalty",
        "--model",
        "--n-best",
        "--nbest",
        "--output",
        "--precision",
        "--prefix",
        "--prune",
        "--resume",
        "--scores",
        "--split",
        "--term",
        "--terms",
        "--to",
        "--whole",
    ],
    "vectors": [
        "--d",
        "--epochs",
        "--force",
        "--help",
        "--json",
        "--min-count",
        "--negatives",
        "--out",
        "--rate",
        "--sample",
        "--seed",
        "--split",
        "--unit",
        "--window",
    ],
    "verify": ["--check", "--device", "--help", "--json", "--length", "--out", "--quick", "--seed"],
}


def cutaway(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from cutaway.cli import main; main()", *args]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


def options(help_: str) -> list[str]:
    _, _, listed = help_.partition("Options:")
    return sorted(
        {
            word.rstrip(",")
            for line in listed.splitlines()
            for word in line.replace(" / ", " ").split()[:2]
            if word.startswith("--")
        }
    )


def test_commands_and_options_are_those_listed_here():
    runner = CliRunner()
    found = {"": options(runner.invoke(cli.app, ["--help"]).output)}
    for name in cli.COMMANDS:
        result = runner.invoke(cli.app, [*name.split(), "--help"])
        assert result.exit_code == 0, result.output
        found[name] = options(result.output)
    assert found == OFFERED


def test_every_command_has_json():
    assert all("--json" in options for name, options in OFFERED.items() if name)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from cutaway.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "print([m for m in ('torch', 'numpy', 'tokenizers', 'rich', 'pydantic') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_version():
    from importlib.metadata import version

    assert CliRunner().invoke(cli.app, ["--version"]).output == f"cutaway {version('cutaway')}\n"


def test_no_arguments_show_the_help():
    assert "Use a model:" in CliRunner().invoke(cli.app, []).output


def test_an_unknown_command_is_wrong_input_and_names_the_near_one():
    ran = cutaway("doctro")
    assert ran.returncode == 2
    assert "Did you mean 'doctor'?" in ran.stderr


# --- how a command fails, with a command planted for it ---------------------------------------------------------------


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Adds a command `planted` that runs these lines, the way a new command is added: a table row and a file."""

    def plant_(*lines: str) -> list[str]:
        body = "\n".join(f"    {line}" for line in lines)
        (tmp_path / "planted.py").write_text(f"def planted():\n    '''Planted.'''\n{body}\n")
        program = (
            f"import cutaway.cli as cli; cli.__path__.append({str(tmp_path)!r})\n"
            "cli.COMMANDS['planted'] = 'planted'; cli.main()"
        )
        return [sys.executable, "-c", program]

    return plant_


def run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


def test_our_errors_are_one_line_and_exit_2(plant):
    command = plant("from cutaway.errors import InputError", "raise InputError('id 7 is not\\nin the vocabulary of 5')")
    ran = run([*command, "planted"])
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: id 7 is not in the vocabulary of 5\n"


def test_debug_shows_the_traceback(plant):
    command = plant("from cutaway.errors import InputError", "raise InputError('no')")
    for ran in (run([*command, "--debug", "planted"]), run([*command, "planted"], CUTAWAY_DEBUG="1")):
        assert ran.returncode == 1
        assert "Traceback" in ran.stderr
        assert "InputError: no" in ran.stderr


def test_a_bug_shows_its_traceback(plant):
    ran = run([*plant("1 / 0"), "planted"])
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr


def test_ctrl_c_exits_130_without_a_traceback(plant):
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # what runs in the background is deaf to it
    kill = "os.kill(os.getpid(), signal.SIGINT)"
    ran = run([*plant("import os, signal", heard, kill, "import time; time.sleep(60)"), "planted"])
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr


# --- what a command does where nothing else is asked ------------------------------------------------------------------

USUAL: dict[str, dict[str, Any]] = {
    "chomsky": {"length": 16, "steps": 500, "words": 100, "seed": 0},
    "circuit": {"size": 30},
    "classify": {"precision": "auto"},
    "compare": {"minutes": 5.0, "start": "\n", "seed": 0},
    "describe": {"batch": 1, "dtype": "float32"},
    "embed": {"pool": "mean", "precision": "auto", "at": "embedding", "k": 10},
    "evaluate": {
        "beam": 4,
        "length_penalty": 1.0,
        "split": "file",
        "resamples": 1000,
        "seed": 0,
        "start": True,
        "precision": "fp32",
        "device": "auto",
        "at": "embedding",
        "vocab": 300000,
    },
    "export": {"to": "hf", "dtype": "float32"},
    "fill": {"k": 5, "precision": "auto"},
    "generate": {
        "max_tokens": 100,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_tokens": 0,
        "beam": 1,
        "n_best": 1,
        "groups": 1,
        "seed": 0,
        "precision": "auto",
    },
    "import": {"dtype": "float32"},
    "inspect": {"method": "integrated", "steps": 16, "k": 5},
    "lens": {"steps": 250, "top": 5},
    "ngram": {"split": "file", "start": "", "max_tokens": 30, "seed": 0},
    "pack": {"store": "int8"},
    "patch": {"over": "residual", "target": ""},
    "plot": {"out": "curve.svg", "metric": "loss"},
    "serve": {
        "host": "127.0.0.1",
        "port": 8321,
        "precision": "auto",
        "max_body": 8_388_608,
        "max_tokens": 4096,
        "max_texts": 256,
        "max_waiting": 1024,
        "max_seconds": 600.0,
        "body_seconds": 30.0,
        "drain_seconds": 8.0,
        "ping_seconds": 15.0,
    },
    "shannon": {"letters": "27"},
    "tokenizer train": {"kind": "bpe", "tags": "", "min_frequency": 1},
    "translate": {"beam": 4, "length_penalty": 1.0, "n_best": 1, "split": True, "precision": "auto"},
    "vectors": {
        "unit": "words",
        "split": "file",
        "d": 100,
        "window": 5,
        "negatives": 5,
        "rate": 0.05,
        "epochs": 3,
        "seed": 0,
    },
    "verify": {"seed": 0, "device": "auto"},
}
BORDERS: dict[str, dict[str, tuple[Any, Any]]] = {
    "chomsky": {
        "length": (2, 64),
        "steps": (1, None),
        "minutes": (">0", None),
        "words": (1, None),
        "seed": (0, None),
        "examples": (1, None),
    },
    "circuit": {"limit": (2, None), "size": (1, None)},
    "classify": {"cut": (1, None)},
    "compare": {"minutes": (">0", None), "steps": (1, None), "seed": (0, None)},
    "demo": {"steps": (1, None)},
    "describe": {"batch": (1, None), "length": (1, None), "source_length": (1, None), "depth": (1, None)},
    "embed": {"cut": (1, None), "k": (1, None)},
    "evaluate": {
        "beam": (1, 1024),
        "prune": (0, None),
        "context": (1, None),
        "stride": (1, None),
        "limit": (1, None),
        "resamples": (0, None),
        "vocab": (1, None),
    },
    "fill": {"k": (1, None)},
    "generate": {
        "max_tokens": (1, None),
        "temperature": (0, None),
        "top_k": (1, None),
        "top_p": (">0", 1),
        "min_p": (0, 1),
        "repetition_penalty": (">0", None),
        "no_repeat_ngram": (1, None),
        "min_tokens": (0, None),
        "beam": (1, 1024),
        "n_best": (1, 1024),
        "groups": (1, None),
        "diversity": (0, None),
        "prune": (0, None),
    },
    "inspect": {"steps": (1, None), "layer": (0, None), "head": (0, None), "k": (1, None)},
    "lens": {"steps": (1, None), "top": (1, None)},
    "ngram": {"order": (1, 7), "classes": (1, None), "most": (1, None), "max_tokens": (0, None), "seed": (0, None)},
    "serve": {
        "port": (0, 65535),
        "max_body": (1, None),
        "max_tokens": (1, None),
        "max_texts": (1, None),
        "max_waiting": (1, None),
        "max_seconds": (">0", None),
        "body_seconds": (">0", None),
        "drain_seconds": (0, None),
        "ping_seconds": (">0", None),
        "threads": (1, None),
        "memory": (1, None),
    },
    "shannon": {"samples": (1, None), "seed": (0, None)},
    "translate": {"beam": (1, 1024), "prune": (0, None), "n_best": (1, None)},
    "vectors": {
        "d": (1, None),
        "window": (1, None),
        "negatives": (1, None),
        "min_count": (1, None),
        "sample": (0, None),
        "rate": (">0", None),
        "epochs": (1, None),
        "seed": (0, None),
    },
}


def function_of(name: str) -> Any:
    file = cli.COMMANDS[name]
    return getattr(import_module(f"cutaway.cli.{file}"), file.rpartition(".")[2])


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_a_command_takes_where_nothing_is_said(name: str) -> None:
    """Other numbers would give other answers to the same words."""
    parameters = signature(with_fields(function_of(name))).parameters.values()
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    said = {key: value for key, value in given.items() if value is not None and value is not False}
    plain = {key: str(value) if isinstance(value, Enum | Path) else value for key, value in said.items()}
    assert plain == USUAL.get(name, {})


def borders_of(name: str) -> dict[str, tuple[Any, Any]]:
    """Those that typer checks, and those that the options check when they are made; ">0" where 0 itself is refused."""
    function = function_of(name)
    hints = get_type_hints(function, include_extras=True)
    infos = {key: info for key, hint in hints.items() for info in getattr(hint, "__metadata__", ())}
    borders: dict[str, tuple[Any, Any]] = {key: (info.min, info.max) for key, info in infos.items()}
    for kind in options_in(signature(function)).values():
        for one in fields(kind):
            least, above = one.metadata["least"], one.metadata["above"]
            if one.metadata.get("type", one.type) is not None:
                borders[one.name] = (least if above is None else f">{above}", one.metadata["most"])
    return {key: both for key, both in borders.items() if both != (None, None)}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_least_and_the_most_that_an_option_may_be(name: str) -> None:
    assert borders_of(name) == BORDERS.get(name, {})
