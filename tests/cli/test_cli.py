"""The command line: what it offers is frozen here, and how it fails."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cutaway import cli

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
