"""Fault 11: empty file, empty lines, a line of 10 MB, invalid UTF-8, unequal sides → error with file and line."""

import gzip
import lzma
import re
import zipfile

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway.bundled.info import card_of
from cutaway.cli import lens_tune
from cutaway.data.table_files import read_parallel, read_table
from cutaway.data.text_files import read_documents, read_lines
from cutaway.decoding.rules.terms import read_terms
from cutaway.errors import InputError
from cutaway.evaluation.word_tests import read_word_test
from cutaway.files import read_text
from cutaway.training.recipe_file import read_toml

MEGABYTE = 1 << 20
PACK = {"plain": bytes, "gz": gzip.compress, "xz": lzma.compress}


def read_as_lines(path):
    return list(read_lines(path))


def read_as_documents(path):
    return list(read_documents([path], "line"))


READERS = [read_as_lines, read_as_documents]


def refuses(read, path, message):
    with pytest.raises(InputError, match=re.escape(str(path)) + message):
        read(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("pack", PACK)
def test_fault_11_an_empty_file(tmp_path, read, pack):
    path = tmp_path / "empty.txt"
    path.write_bytes(PACK[pack](b""))
    refuses(read, path, " is empty")


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("split", ["file", "line", "form_feed", "blank_line"])
def test_fault_11_only_empty_lines(tmp_path, pack, split):
    path = tmp_path / "blank.txt"
    path.write_bytes(PACK[pack](b"\n \n\f\n\n"))
    refuses(lambda path: list(read_documents([path], split)), path, " holds only white space")


@pytest.mark.parametrize("pack", PACK)
def test_fault_11_a_line_of_10_mb(tmp_path, pack):
    path = tmp_path / "long.txt"
    path.write_bytes(PACK[pack](b"one\ntwo\n" + b"x" * (10 * MEGABYTE + 1) + b"\nfour\n"))
    refuses(read_as_lines, path, ", line 3: more than 1,048,576 bytes")
    refuses(read_as_documents, path, ", line 3: more than 10,485,760 bytes")


def test_fault_11_a_line_without_end_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "endless.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse terabyte
    refuses(read_as_lines, path, ", line 1: more than 1,048,576 bytes")


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("wrong", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80"])
def test_fault_11_invalid_utf_8(tmp_path, read, pack, wrong):
    path = tmp_path / "latin.txt"
    path.write_bytes(PACK[pack](b"\xef\xbb\xbf" + b"right\n" * 300_000 + b"abc " + wrong + b"\nright\n"))
    refuses(read, path, rf", line 300001: not UTF-8 \(the byte 0x{wrong[0]:02x} at place 5\)")


@pytest.mark.parametrize("read", READERS)
def test_fault_11_a_character_cut_off_at_the_end(tmp_path, read):
    path = tmp_path / "cut.txt"
    path.write_bytes("ends with é".encode()[:-1])
    refuses(read, path, ", line 1: not UTF-8")


@pytest.mark.parametrize("read", READERS)
def test_fault_11_other_forms_are_named(tmp_path, read):
    path = tmp_path / "text"
    path.write_text("hello", encoding="utf-16")
    refuses(read, path, " is UTF-16")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello", "hello")
    refuses(read, path, " is a zip archive")


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("pack", ["gz", "xz"])
def test_fault_11_a_damaged_archive(tmp_path, read, pack):
    path = tmp_path / "packed"
    whole = PACK[pack](b"".join(b"line %d\n" % i for i in range(10_000)))
    for cut in (9, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        refuses(read, path, " is damaged or cut short")
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(InputError, match="packed"):  # what the flipped bit makes of the text may fail first
        read(path)


@pytest.mark.parametrize("read", READERS)
def test_fault_11_what_is_no_file(tmp_path, read):
    refuses(read, tmp_path / "absent", " cannot be read: No such file")
    refuses(read, tmp_path, " is not a regular file")


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 5), (5, 3), (0, 1), (1, 2)])
@pytest.mark.parametrize("pack", PACK)
def test_fault_11_unequal_sides(tmp_path, pack, n_source, n_target):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    for path, n in ((source, n_source), (target, n_target)):
        path.write_bytes(PACK[pack](b"a line\n" * n))
    if not n_source:
        refuses(lambda _: list(read_parallel(source, target)), source, " is empty")
        return
    with pytest.raises(InputError, match=rf"text\.en has {n_source} lines, .*text\.de has {n_target}: "):
        list(read_parallel(source, target))


def test_fault_11_an_empty_line_on_one_side(tmp_path):
    source, target = tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("one\ntwo\n\nfour\n")
    target.write_text("eins\n \ndrei\nvier\n")
    rows = read_parallel(source, target)
    assert [row["target"] for row in rows] == ["eins", "vier"]
    assert rows.skipped == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.tsv", "a\tb\n1\t2\n\n3\t4\n", r", line 3: 1 fields where 2 are named \(a, b\)"),
        ("t.tsv", "a\tb\n1\t2\n3\t4\t5\n", r", line 3: 3 fields where 2 are named"),
        ("t.csv", 'a,b\n"1\n1",2\n\n3,4\n', r", line 4: 0 fields where 2 are named"),
        ("t.csv", 'a,b\n"1"1,2\n', r", line 2: .*quoted=False"),
        ("t.csv", 'a,b\n1,2\n"1,2\n3,4\n', r", line 3: unexpected end of data"),
        ("t.jsonl", '{"a": 1}\n\n{"a": 2}\n', r", line 2 is not valid JSON"),
        ("t.jsonl", '{"a": 1}\n{"a": 2\n', r", line 2 is not valid JSON"),
        ("t.jsonl", '{"a": 1}\n[1]\n', r", line 2 must hold a JSON object"),
        ("t.jsonl", '{"a": 1}\n{"a": null}\n', r", line 2, a: a null where"),
        ("t.jsonl", '{"a": 1}\n{"a": NaN}\n', r", line 2 is not valid JSON"),
        ("t.jsonl", '{"a": 1}\n{"a": {}}\n', r", line 2, a: a dict where"),
        ("t.jsonl", '{"a": ' + "[" * 100_000, r", line 1 "),
    ],
)
def test_fault_11_rows_that_are_not_rows(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    refuses(lambda path: list(read_table(path)), path, message)


def first_of_tune(path):
    return lens_tune._rows(tiny("gpt2", dtype=torch.float32, vocab_size=400), byte_level(), path, 2)[1][0][0].tolist()


MARKED = {
    "a text": (read_text, "one\ntwo\n"),
    "lines": (read_as_lines, "one\ntwo\n"),
    "documents": (lambda path: [piece.text for piece in read_as_documents(path)], "one\ntwo\n"),
    "a table": (lambda path: list(read_table(path)), "name\tlabel\nann\t1\n"),
    "JSON lines": (lambda path: list(read_table(path)), '{"name": "ann"}\n'),
    "terms": (read_terms, "dog\tHund\n"),
    "a recipe": (read_toml, "[model]\nn_layers = 2\n"),
    "a card": (lambda path: card_of(path.parent), "---\nabout: it writes\n---\n"),
    "likeness of words": (lambda path: read_word_test([path]), "man\twoman\t7\nking\tqueen\t8\n"),
    "analogies": (lambda path: read_word_test([path]), ": family\nman woman king queen\n"),
    "what a lens is tuned on": (first_of_tune, "the quick brown fox jumps " * 40),
}


@pytest.mark.parametrize("what", MARKED)
def test_a_byte_order_mark_is_none_of_what_is_read(tmp_path, what):
    """Some editors put one before every file that they keep."""
    read, text = MARKED[what]
    name = "README.md" if what == "a card" else "a.jsonl" if what == "JSON lines" else "a.tsv"
    found = []
    for mark in ("", "\ufeff"):
        path = tmp_path / name
        path.write_text(mark + text, encoding="utf-8")
        found.append(read(path))
    assert found[0]
    assert repr(found[0]) == repr(found[1])
