"""The cache: keyed by content, whole or absent, safe to share."""

import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.data.cache import (
    META,
    cached,
    checksum_of,
    content_key,
    data_cache_folder,
    facts,
    fault_of,
    notes_to,
    open_array,
)
from cutaway.errors import InputError
from cutaway.files import held


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_bytes(b"some text")
    return path


class Builder:
    """Writes one file, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> dict[str, int]:
        self.calls += 1
        (folder / "data").write_bytes(b"12345678")
        return {"n": self.calls}


def test_the_second_time_nothing_is_built(tmp_path, source):
    build = Builder()
    first = cached([source], {}, build, tmp_path / "cache")
    second = cached([source], {}, build, tmp_path / "cache")
    assert first == second
    assert build.calls == 1
    assert facts(second) == {"n": 1}


def test_the_key_is_made_of_content(tmp_path, source):
    key = content_key([source], {"split": "line"})
    copy = tmp_path / "elsewhere"
    copy.write_bytes(source.read_bytes())
    assert content_key([copy], {"split": "line"}) == key
    other = tmp_path / "other"
    for i in range(len(b"some text")):
        data = bytearray(b"some text")
        data[i] ^= 1
        other.write_bytes(data)
        assert content_key([other], {"split": "line"}) != key
    assert content_key([source], {"split": "file"}) != key
    assert content_key([source, copy], {"split": "line"}) != key
    other.write_bytes(b"other text")
    assert content_key([source, other], {}) != content_key([other, source], {})


def test_where_one_file_ends_matters(tmp_path):
    names = [tmp_path / name for name in "abcd"]
    for path, data in zip(names, [b"ab", b"c", b"a", b"bc"], strict=True):
        path.write_bytes(data)
    assert content_key(names[:2], {}) != content_key(names[2:], {})


@pytest.mark.parametrize("damage", ["shorter", "longer", "gone", "no meta", "half a meta", "not an entry"])
def test_a_damaged_entry_is_built_again(tmp_path, source, damage):
    build = Builder()
    entry = cached([source], {}, build, tmp_path / "cache")
    match damage:
        case "shorter" | "longer":
            (entry / "data").write_bytes(b"1" * (7 if damage == "shorter" else 9))
        case "gone":
            (entry / "data").unlink()
        case "no meta":
            (entry / "meta.json").unlink()
        case "half a meta":
            (entry / "meta.json").write_text((entry / "meta.json").read_text()[:20])
        case "not an entry":
            (entry / "meta.json").write_text('{"files": []}')
    is_built_again_with_a_note(build, source, entry)


def is_built_again_with_a_note(build, source, entry):
    said: list[str] = []
    before = build.calls
    with notes_to(said.append):
        again = cached([source], {}, build, entry.parent)
        cached([source], {}, build, entry.parent)
    (note,) = said
    assert note.startswith("the cache is damaged and is built again: ")
    assert str(entry) in note
    assert again == entry
    assert build.calls == before + 1
    assert fault_of(entry) is None
    assert (entry / "data").read_bytes() == b"12345678"
    assert not list(entry.parent.glob(".*.tmp"))


def test_a_flip_of_any_bit_of_an_entry_is_seen(tmp_path, source):
    build = Builder()
    entry = cached([source], {}, build, tmp_path / "cache")
    for path in (entry / "data", entry / "meta.json"):
        whole = path.read_bytes()
        for place, bit in itertools.product(range(len(whole)), range(8)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            assert fault_of(entry), (path, place, bit)
        is_built_again_with_a_note(build, source, entry)


def test_a_flip_in_any_chunk_of_a_large_file_is_seen(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(9 << 20))
    whole = checksum_of(path)
    sums = {whole}
    for place in (0, (4 << 20) - 1, 4 << 20, (8 << 20) + 1, (9 << 20) - 1):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\1")
            file.flush()
            sums.add(checksum_of(path))
            file.seek(place)
            file.write(b"\0")
    assert len(sums) == 6
    assert checksum_of(path) == whole


def test_an_entry_that_cannot_be_read_is_built_again(tmp_path, source, monkeypatch):
    build = Builder()
    entry = cached([source], {}, build, tmp_path / "cache")

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def mended(folder):
        monkeypatch.undo()
        return build(folder)

    monkeypatch.setattr(os, "pread", broken)
    with pytest.warns(UserWarning, match="built again: .* cannot be read: Input/output error"):
        assert cached([source], {}, mended, tmp_path / "cache") == entry
    assert build.calls == 2


def test_an_entry_from_before_checksums_is_built_again_without_a_word(tmp_path, source):
    build = Builder()
    entry = cached([source], {}, build, tmp_path / "cache")
    (entry / META).write_text('{"files": {"data": 8}, "facts": {"n": 7}}')
    assert facts(cached([source], {}, build, tmp_path / "cache")) == {"n": 2}


def test_an_error_leaves_nothing_behind(tmp_path, source):
    def build(folder):
        (folder / "data").write_bytes(b"half")
        raise InputError("a bad line")

    with pytest.raises(InputError, match="a bad line"):
        cached([source], {}, build, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


DIE = """
import os, sys
from pathlib import Path
from cutaway.data.cache import cached

def build(folder):
    (folder / "data").write_bytes(b"half")
    os._exit(9)

cached([Path(sys.argv[1])], {}, build, Path(sys.argv[2]))
"""


@pytest.mark.parametrize("settings", [{}, {"other": 1}])
def test_what_a_killed_builder_leaves_is_ignored_and_removed(tmp_path, source, settings):
    cache = tmp_path / "cache"
    assert subprocess.run([sys.executable, "-c", DIE, source, cache]).returncode == 9
    assert len(list(cache.glob(".*.tmp"))) == 1
    build = Builder()
    entry = cached([source], settings, build, cache)  # the same key, and another
    assert (entry / "data").read_bytes() == b"12345678"
    assert build.calls == 1
    assert list(cache.glob(".*.tmp")) == []


def test_what_another_is_building_is_left_alone(tmp_path, source):
    cache = tmp_path / "cache"
    key = "a" * 64
    theirs, users = cache / f".{key}.{'1' * 32}.tmp", cache / ".notes.tmp"
    theirs.mkdir(parents=True)
    users.mkdir()
    with held(theirs):
        cached([source], {}, Builder(), cache)
        assert theirs.exists()
    cached([source], {"other": 1}, Builder(), cache)
    assert not theirs.exists()
    assert users.exists()  # none of our names


BUILD_SLOWLY = """
import sys, time
from pathlib import Path
from cutaway.data.cache import cached

def build(folder):
    with Path(sys.argv[3]).open("a") as file:
        file.write("built\\n")
    (folder / "data").write_bytes(b"1234")
    time.sleep(1)
    return {}

entry = cached([Path(sys.argv[1])], {}, build, Path(sys.argv[2]))
assert (entry / "data").read_bytes() == b"1234"
"""


def test_two_processes_build_one_entry_once(tmp_path, source):
    log = tmp_path / "log"
    command = [sys.executable, "-c", BUILD_SLOWLY, source, tmp_path / "cache", log]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert log.read_text() == "built\n"


@pytest.mark.parametrize("text", [b"other text", b"same size"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, source, text, at):
    other = tmp_path / "other.txt"
    other.write_bytes(source.read_bytes())
    for path in (source, other):
        os.utime(path, (1e9, 1e9))  # a clock may tick too rarely to tell a file from the one of a moment ago

    def build(folder):
        (source, other)[at].write_bytes(text)
        return {}

    with pytest.raises(InputError, match=rf"{('source', 'other')[at]}\.txt changed while it was read"):
        cached([source, other], {}, build, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written_names_the_way_out(tmp_path, source):
    (tmp_path / "cache").write_text("a file stands here")
    with pytest.raises(InputError, match=r"cache cannot be written.*CUTAWAY_CACHE"):
        cached([source], {}, Builder(), tmp_path / "cache")


def test_a_full_disk_names_the_way_out(tmp_path, source):
    def build(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"No space left on device; make room, or set CUTAWAY_CACHE"):
        cached([source], {}, build, tmp_path / "cache")


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path))
    assert data_cache_folder() == tmp_path / "data"
    monkeypatch.delenv("CUTAWAY_CACHE")
    assert data_cache_folder() == Path.home() / ".cache" / "cutaway" / "data"


def test_arrays_cannot_be_written_to(tmp_path):
    path = tmp_path / "array"
    path.write_bytes(b"\1\2\3\4")
    array = open_array(path, "u1", (2, 2))
    assert array.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 9
    assert open_array(tmp_path / "absent", "u1", (0, 3)).shape == (0, 3)
