"""Strict JSON, atomic writing, and names that stay inside their folder."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.limits import limits

from cutaway.errors import CheckpointError, ConfigError, InputError, MissingExtra
from cutaway.files import (
    damage,
    naming,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    replacing,
    safe_child,
    write_json,
)


def test_json_goes_out_and_comes_back_in_its_order(tmp_path: Path):
    value = {"b": 1, "a": [1.5, None, True], "ä": {"ß": "日本"}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert list(read_json(tmp_path / "x.json")) == ["b", "a", "ä"]
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "must hold a JSON object, not a list"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"x": {"a": 1, "b": 2, "a": 2}}', "'a' occurs twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_json_that_could_mean_two_things_is_refused_with_the_name_of_the_file(data: bytes, reason: str):
    with pytest.raises(CheckpointError, match=reason) as caught:
        parse_json(data, "model/config.json")
    assert "model/config.json" in str(caught.value)


def test_a_file_over_the_limit_is_not_read(tmp_path: Path):
    (tmp_path / "x.json").write_text(json.dumps({"a": "b" * 100}))
    with pytest.raises(CheckpointError, match="at most 50 are read"):
        read_json(tmp_path / "x.json", limit=50)


@pytest.mark.parametrize("read", [read_bytes, read_text, read_json])
def test_a_file_of_just_the_limit_is_read(tmp_path: Path, read: Callable[..., object]):
    path = tmp_path / "x.json"
    path.write_bytes(b'{"a": 1}')
    assert read(path, 8) == {read_bytes: b'{"a": 1}', read_text: '{"a": 1}', read_json: {"a": 1}}[read]
    with pytest.raises(CheckpointError, match=r"x\.json has 8 bytes; at most 7 are read"):
        read(path, 7)


@pytest.mark.parametrize("digits", ["1" * 300, "-" + "9" * 299])
def test_the_longest_whole_number_is_read_and_no_longer_one(digits: str):
    assert parse_json(f'{{"a": {digits}}}'.encode(), "x") == {"a": int(digits)}
    with pytest.raises(CheckpointError, match="too large for a number"):
        parse_json(f'{{"a": {digits}0}}'.encode(), "x")


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), tmp_path / "absent", tmp_path / "nul\0"):
        with limits(30), pytest.raises(CheckpointError):
            read_bytes(path, 100)


def test_numbers_that_json_lacks_are_not_written(tmp_path: Path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"a": float("nan")})
    assert os.listdir(tmp_path) == []


def test_an_error_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path):
    path = tmp_path / "x.txt"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_the_new_file_appears_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "x.txt"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == tmp_path  # a rename is atomic within one file system only
        assert not path.exists()
    assert path.read_text() == "new"


def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(CheckpointError, match=f"{name} cannot be written: it is not a regular file"):
            write_json(tmp_path / name, {})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path):
    left, other = tmp_path / f".x.json.{'0' * 32}.tmp", tmp_path / f".y.json.{'0' * 32}.tmp"
    users = [tmp_path / ".x.json.tmp", tmp_path / f".x.json.{'0' * 31}.tmp", tmp_path / f"x.json.{'0' * 32}.tmp", other]
    for path in (left, *users):
        path.write_text("half")
    with replacing(tmp_path / "x.json") as temporary:
        write_json(tmp_path / "x.json", {"another": "writer, at the same time"})
        temporary.write_text("new")
    assert sorted(tmp_path.iterdir()) == sorted([*users, tmp_path / "x.json"])
    assert (tmp_path / "x.json").read_text() == "new"


def test_a_written_file_may_be_read_by_whom_the_umask_allows(tmp_path: Path):
    with replacing(tmp_path / "x") as temporary:
        temporary.unlink()
        temporary.touch(0o600)  # as some writers do
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


@pytest.mark.parametrize("folder", ["absent", "file"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, folder: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"x\.json cannot be written: (No such file|Not a directory)"):
        write_json(tmp_path / folder / "x.json", {})


def test_a_plain_name_is_found(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "alias").symlink_to("model")
    assert safe_child(tmp_path, "model").samefile(tmp_path / "model")
    assert safe_child(tmp_path, "alias").samefile(tmp_path / "model")  # a link that stays inside


@pytest.mark.parametrize("half", ['"\\ud800"', '"a\\uDFFFb"', '{"\\udc00": 1}', '["x", {"y": "\\ud83d"}]'])
def test_half_of_a_character_is_refused_with_the_name_of_the_file(half: str):
    with pytest.raises(CheckpointError, match=r"x\.json, line 3 is not valid JSON: .*lone surrogate"):
        parse_json(f'{{"a": {half}}}'.encode(), "x.json, line 3")


def test_both_halves_of_a_character_are_one():
    assert parse_json(b'{"a": "\\ud83d\\ude00", "b": "\\u00e9"}', "x") == {"a": "\U0001f600", "b": "é"}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400 + ".0", "1" + "0" * 400, "-" + "9" * 310])
def test_a_number_beyond_all_numbers_is_refused(number: str):
    with pytest.raises(CheckpointError, match=r"x is not valid JSON: .* is too large for a number"):
        parse_json(f'{{"a": [{number}]}}'.encode(), "x")


def test_an_error_says_in_which_file_it_arose_and_says_it_once():
    for said in ("n_heads=0", "x.json: n_heads=0"):
        with pytest.raises(ConfigError) as error, naming("x.json"):
            raise ConfigError(said)
        assert str(error.value) == "x.json: n_heads=0"
    with pytest.raises(MissingExtra, match="pyarrow"), naming("x.json"):
        raise MissingExtra("pyarrow", "parquet")


@pytest.mark.parametrize(
    "fault", [ValueError("odd"), KeyError("x"), RecursionError(), OverflowError("days"), OSError(5, "I/O")]
)
def test_whatever_a_library_raises_over_a_file_is_our_error(fault: Exception):
    with pytest.raises(InputError, match=r"^x\.npz is damaged: ."), damage("x.npz", kind=InputError):
        raise fault
    with pytest.raises(KeyboardInterrupt), damage("x.npz"):
        raise KeyboardInterrupt


def test_a_message_can_be_shown_whatever_a_file_put_into_it():
    said = str(InputError("no column '\ud800\x1b[31m\u202e\0', there are: é 漢字\xa0\U0001f600\n\tnext"))
    assert said == "no column '\\ud800\\x1b[31m\\u202e\\x00', there are: é 漢字\xa0\U0001f600\n\tnext"
    long = str(InputError("begins " + "\0" * 100_000 + " ends"))
    assert len(long) < 3000
    assert long.startswith("begins ")
    assert long.endswith(" ends")
