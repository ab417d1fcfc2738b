"""Others' words are shown, not obeyed, wherever a command writes them; and a stdout that takes nothing more is no
traceback."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutaway import cli
from cutaway.bundled import HERE
from cutaway.cli.shared.options import locate_model
from cutaway.cli.shared.streams import Stream, safe_streams, unwritable
from cutaway.pictures.console import Console
from cutaway.pictures.terminal_text import json_text, visible_controls

ODD = "a\x1b[31mb\x07c\x9b2Jd\re"
BY_RICH = r"a\x1b[31mbc\x9b2Jde"  # which drops the bell and what returns to the first column
SHOWN = r"a\x1b[31mb\x07c\x9b2Jd\x0de"


def test_what_is_seen() -> None:
    assert visible_controls(ODD) == SHOWN
    assert visible_controls("naïve\tä\n数学 🙂") == "naïve\tä\n数学 🙂"


@pytest.mark.parametrize("terminal", [True, False])
def test_prints_to_a_terminal_and_to_stderr_are_shown(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets what was written: an answer is data."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with safe_streams():
        print(ODD, "\udce9")
        print(ODD, file=sys.stderr)
        Console(force_terminal=True).print("[bold] :smile:", ODD, style="red")
    assert sys.stdout is out
    out.flush()
    err.flush()
    first, second = out.buffer.getvalue().decode().splitlines()[-2:] if terminal else (  # type: ignore[attr-defined]
        out.buffer.getvalue().decode().rpartition("\n\x1b")[0].removesuffix("\n"), ""  # type: ignore[attr-defined]
    )  # fmt: skip
    assert first == (SHOWN if terminal else ODD) + r" \udce9"
    assert second in ("", f"\x1b[31m[bold] :smile: {BY_RICH}\x1b[0m")
    assert err.buffer.getvalue().decode() == SHOWN + "\n"  # type: ignore[attr-defined]


def test_only_what_stands_behind_stdout_is_taken_for_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    full, gone = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EPIPE))
    assert (unwritable(full), unwritable(gone)) == (2, 141)
    assert capsys.readouterr().err == "error: stdout cannot be written: No space left on device\n"
    assert unwritable(OSError(errno.ENOSPC, "No space left on device", "model.safetensors")) is None
    assert unwritable(OSError(errno.EACCES, "Permission denied")) is None
    assert capsys.readouterr().err == ""


def test_a_console_knows_no_markup_and_shows_what_is_in_tables() -> None:
    from rich.table import Table

    table = Table("[/]" * 10, title=ODD)
    table.add_row(f"[red]{ODD}")
    file = io.StringIO()
    Console(file=file, width=80).print(table)
    said = file.getvalue()
    assert BY_RICH in said
    assert f"[red]{BY_RICH}" in said
    assert "[/]" in said
    assert not set(said) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))


def test_every_command_uses_that_console() -> None:
    files = Path(cli.__file__).parent.rglob("*.py")
    others = [file.name for file in files if "from rich.console import Console" in file.read_text()]
    assert others == []


@pytest.mark.parametrize("args", [["describe", ODD], ["fill", "a", "--model", ODD], ["runs", ODD], ["train", ODD]])
def test_a_name_in_an_error_is_shown(args: list[str], tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli.app, [*args, "--out", str(tmp_path / "out")] if args[0] == "train" else args)
    assert ran.exit_code == 2
    assert SHOWN in ran.stderr.replace("\n", "") or r"a\x1b[31mb" in ran.stderr
    assert "\x1b" not in ran.output
    assert "\x9b" not in ran.output


def test_the_name_of_a_model_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ODD.replace("\r", "")
    folder.mkdir()
    (folder / "config.json").write_text('{"family": "gpt2"}')
    monkeypatch.setenv("CUTAWAY_MODELS", str(tmp_path))
    for args in (["models"], ["models", "--json"]):
        said = CliRunner().invoke(cli.app, args).stdout
        assert not {"\x1b", "\x07", "\x9b"} & set(said)
    assert json.loads(said)[0]["name"] == folder.name


def test_json_is_obeyed_by_no_terminal() -> None:
    assert json_text([ODD, "\udce9"]) == r'["a\u001b[31mb\u0007c\u009b2Jd\re", "\udce9"]'


@pytest.mark.parametrize("number", [2**53 + 1, -(10**30)])
def test_a_number_that_is_no_integer_elsewhere(number: int) -> None:
    ran = CliRunner().invoke(cli.app, ["verify", "digits", "--length", str(number)])
    assert ran.exit_code == 2
    assert ran.stderr == f"error: --length {number} is beyond 9,007,199,254,740,992\n"


def test_an_error_of_the_system_names_the_file() -> None:
    ran = CliRunner().invoke(cli.app, ["describe", "z" * 400])
    assert (ran.exit_code, ran.stderr) == (2, f"error: {'z' * 400}: File name too long\n")


# --- processes of their own -------------------------------------------------------------------------------------------


def started(*args: str, stdout: int, **env: str) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, **env}
    command = [sys.executable, "-m", "cutaway", *args]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environ, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("args", [["--help"], ["models"], ["models", "--json"]])
def test_a_full_disk_behind_stdout(args: list[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    ran = started(*args, stdout=full)
    os.close(full)
    assert ran.returncode == 2
    assert ran.stderr == b"error: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("args", [["models"], ["models", "--json"]])
def test_a_reader_who_has_gone(args: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    ran = started(*args, stdout=write)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_an_encoding_that_knows_few_letters() -> None:
    ran = started("runs", str(Path(__file__).parent), stdout=subprocess.DEVNULL, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_streams_that_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with safe_streams():
        print("nothing")
        assert isinstance(sys.stdout, Stream)
    assert sys.stdout is None


# --- two things of one name -------------------------------------------------------------------------------------------


def test_a_size_and_a_folder_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli.app, ["describe", "gpt2", "--depth", "1"]).stderr == ""
    (tmp_path / "gpt2").mkdir()
    ran = CliRunner().invoke(cli.app, ["describe", "gpt2", "--depth", "1"])
    assert ran.stderr == "note: gpt2 is the named size; ./gpt2 is what lies here by that name\n"
    assert "124,439,808" in ran.stdout


def test_a_model_and_a_folder_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate_model(Path("digits")) == HERE / "digits"
    (tmp_path / "digits").mkdir()
    assert "note: this is the model in" in (said := _noted(monkeypatch))
    assert "digits, a folder here, is no model" in said
    (tmp_path / "digits" / "config.json").write_text("{}")
    assert "note: this is the model in ./digits; the bundled one is" in _noted(monkeypatch)


def _noted(monkeypatch: pytest.MonkeyPatch) -> str:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    locate_model(Path("digits"))
    return said.getvalue()
