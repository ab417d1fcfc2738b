"""Text files: what was written is what is read, whatever it is packed in and however it is cut."""

import tracemalloc
from itertools import chain, groupby

import pytest
from helpers.data_samples import KINDS, LINES, TEXTS, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.data import text_files as module
from cutaway.data.text_files import read_documents, read_lines
from cutaway.errors import InputError

MEGABYTE = 1 << 20
PACKED = ["plain", "packed.gz", "packed.xz"]
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def documents(path, split):
    """Whole documents, from their pieces."""
    result, parts = [], []
    for piece in read_documents([path], split):
        parts.append(piece.text)
        if piece.ends:
            result.append("".join(parts))
            parts = []
    assert not parts, "the last document has no end"
    return result


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(module, "WINDOW", 8)


@pytest.mark.parametrize("name", PACKED)
@same_folder
@given(lines=LINES, newline=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), mark=st.booleans())
def test_lines_written_are_lines_read(tmp_path, name, lines, newline, last, mark):
    whole = newline.join(lines) + (newline if last or not lines[-1] else "")
    path = write(tmp_path / name, ("\ufeff" if mark else "") + whole)
    if not whole:
        return
    assert list(read_lines(path)) == lines


@same_folder
@given(lines=LINES, block=st.integers(1, 40))
def test_blocks_do_not_show(tmp_path, lines, block):
    path = write(tmp_path / "text", "".join(line + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        assert list(read_lines(path)) == lines


def test_a_name_says_nothing_about_the_packing(tmp_path):
    write(tmp_path / "a.gz", "hello\n").rename(tmp_path / "a.txt")
    (tmp_path / "b.gz").write_text("hello\n")
    assert list(read_lines(tmp_path / "a.txt")) == list(read_lines(tmp_path / "b.gz")) == ["hello"]


def test_a_line_may_be_as_long_as_allowed(tmp_path):
    path = write(tmp_path / "text", "x" * 100 + "\n" + "y" * 100)
    assert list(read_lines(path, longest=100)) == ["x" * 100, "y" * 100]
    with pytest.raises(InputError, match=r"text, line 1: more than 99 bytes"):
        list(read_lines(path, longest=99))


def test_progress_tells_how_many_bytes_are_read(tmp_path):
    paths = [write(tmp_path / name, "some text\n" * 1000) for name in PACKED]
    told = []
    for _ in read_documents(paths, "line", lambda done, total: told.append((done, total))):
        pass
    assert told == sorted(told)
    size = sum(path.stat().st_size for path in paths)
    assert told[-1] == (size, size)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("file", ["one\ntwo\n\n \nthree\fstill\n\f\n\ffour\n"]),
        ("line", ["one", "two", "three\fstill", "four"]),
        ("form_feed", ["one\ntwo\n\n \nthree", "still\n", "four\n"]),
        ("blank_line", ["one\ntwo", "three\fstill", "four"]),
    ],
)
def test_documents_are_parted_as_asked(tmp_path, split, expected):
    path = write(tmp_path / "text", "one\ntwo\n\n \nthree\fstill\n\f\n\ffour\n")
    if split in ("line", "blank_line"):
        expected = [*expected[:-1], "\ffour"]  # a form feed there is white space like any other
    assert documents(path, split) == expected


@pytest.mark.parametrize("split", ["file", "line", "form_feed", "blank_line"])
@same_folder
@given(text=TEXTS)
def test_documents_are_the_same_in_pieces(tmp_path, split, text):
    path = write(tmp_path / "text", text + "x")
    whole = documents(path, split)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("PIECE", 16), ("WINDOW", 8), ("BLOCK", 10)):
            patch.setattr(module, name, size)
        assert documents(path, split) == whole
    separator = {"file": None, "line": "\n", "form_feed": "\f"}
    if split != "blank_line":
        parts = [(text + "x").replace("\r\n", "\n")]
        parts = parts[0].split(separator[split]) if separator[split] else parts
        assert whole == [part for part in parts if part and not part.isspace()]


@pytest.mark.usefixtures("small_pieces")
def test_white_space_at_the_end_of_a_long_document_belongs_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "DESERT", 8)
    text = "some words" + " " * 60
    assert documents(write(tmp_path / "text", f"{text}\f{text}"), "form_feed") == [text, text]


def test_blank_lines_part_documents(tmp_path):
    lines = ["a", "b", "", "c", " \t", "", "d"]
    path = write(tmp_path / "text", "\n".join(lines))
    groups = [list(group) for full, group in groupby(lines, lambda line: bool(line.strip())) if full]
    assert documents(path, "blank_line") == ["\n".join(group) for group in groups]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("small_pieces")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(text=TEXTS)
def test_the_ids_of_the_pieces_are_the_ids_of_the_whole(tmp_path, kind, text):
    tokenizer = KINDS[kind]()
    path = write(tmp_path / "text", "x" + text)
    (whole,) = documents(path, "file")
    pieces = [piece.text for piece in read_documents([path])]
    assert [*chain(*tokenizer.encode_batch(pieces, special=False))] == tokenizer.encode(whole, special=False)


@pytest.mark.usefixtures("small_pieces")
def test_long_texts_are_cut_at_all(tmp_path):
    path = write(tmp_path / "text", "some words in a line\nand more of them\n" * 10)
    pieces = [piece.text for piece in read_documents([path])]
    assert len(pieces) > 15
    assert max(map(len, pieces)) <= 24
    assert any(piece.endswith("\n") for piece in pieces[:-1]), "a new line is the best place"


def test_a_long_document_is_never_in_memory(tmp_path):
    line = "a line of some words, as they stand in books\n"
    path = tmp_path / "long.txt"
    with path.open("w") as file:
        for _ in range(64):
            file.write(line * (MEGABYTE // len(line)))
    size = path.stat().st_size
    tracemalloc.start()
    total = sum(len(piece.text) for piece in read_documents([path]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == size
    assert peak < 8 * MEGABYTE  # of 64


def test_only_white_space_without_end_is_cut_as_well(tmp_path):
    path = tmp_path / "blank.txt"
    with path.open("w") as file:
        file.write("x")
        for _ in range(24):
            file.write("\n" * MEGABYTE)
    pieces = list(read_documents([path]))
    assert sum(len(piece.text) for piece in pieces) == 24 * MEGABYTE + 1
    assert max(len(piece.text) for piece in pieces) < MEGABYTE


def test_indented_japanese_is_cut_as_well(tmp_path):
    path = write(tmp_path / "novel", "\u3000吾輩は猫である。名前はまだ無い。\n" * 50_000)
    pieces = [piece.text for piece in read_documents([path])]
    assert max(map(len, pieces)) < MEGABYTE / 8
    tokenizer = KINDS["bpe"]()
    whole = tokenizer.encode("".join(pieces[:3]), special=False)
    assert [*chain(*tokenizer.encode_batch(pieces[:3], special=False))] == whole


def test_a_text_without_any_place_to_cut_is_read_on_up_to_the_longest_line(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE_OF_A_DOCUMENT", 100)
    assert module._place_to_cut("a" * 150, 50) is None
    assert module._place_to_cut("a" * 151, 50) == 50


@pytest.mark.parametrize("name", ["x.gz", "x.xz"])
def test_what_unpacks_to_far_more_than_any_text_is_not_unpacked(tmp_path, name):
    path = write(tmp_path / name, b"a b\n" * (16 * MEGABYTE))
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"{name} unpacks to more than 200 times its size"):
        list(read_lines(path))
    assert tracemalloc.get_traced_memory()[1] < 400 * MEGABYTE
    tracemalloc.stop()
    assert sum(1 for _ in read_lines(write(tmp_path / f"small-{name}", b"a b\n" * MEGABYTE))) == MEGABYTE
