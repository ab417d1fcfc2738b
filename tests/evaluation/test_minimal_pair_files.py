"""Minimal pairs from files: known by their columns, from tables, folders and archives, with errors that name them."""

import gzip
import json
import zipfile
from pathlib import Path
from random import Random

import pytest
from helpers.classifiers import classifier
from helpers.limits import limits
from helpers.tiny_models import tiny

from cutaway.errors import InputError
from cutaway.evaluation import Pair
from cutaway.evaluation.examples import Columns, read_examples
from cutaway.evaluation.minimal_pair_files import read_pairs

WRITER, FILLER = tiny("gpt2"), tiny("bert")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))


def lines(*rows: dict) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def blimp(good: str, bad: str, **more) -> dict:
    return {"sentence_good": good, "sentence_bad": bad, "one_prefix_method": True, **more}


FIRST = lines(
    blimp("a b", "b a", field="syntax/semantics", linguistics_term="s-selection", UID="order", pairID="0"),
    blimp("c d", " ", field="syntax", linguistics_term="binding", UID="order", pairID="1"),
    blimp("e f", "f e", field="syntax", linguistics_term="binding", UID="order", pairID="2"),
)
SECOND = lines(blimp("g", "h", note=None), blimp("i", "j", note=None))
A, B, C, D = (
    Pair("a b", "b a", {"kind": "order", "field": "syntax_semantics", "term": "argument_structure"}),
    Pair("e f", "f e", {"kind": "order", "field": "syntax", "term": "binding"}),
    Pair("g", "h", {"kind": "second"}),
    Pair("i", "j", {"kind": "second"}),
)


def folder(root: Path) -> Path:
    (root / "data").mkdir(parents=True)
    (root / "data" / "first.jsonl").write_bytes(FIRST)
    (root / "data" / "second.jsonl.gz").write_bytes(gzip.compress(SECOND))
    (root / "data" / "._first.jsonl").write_bytes(b"\xb0")
    (root / "README.md").write_text("tables")
    return root


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("data/first.jsonl", FIRST)
        packed.writestr("data/second.jsonl.gz", gzip.compress(SECOND))
        packed.writestr("__MACOSX/data/._first.jsonl", b"\xb0")
    return path


@pytest.mark.parametrize("model", [WRITER, FILLER], ids=["writes", "fills"])
@pytest.mark.parametrize("make", [folder, archive])
def test_folders_and_archives(tmp_path, model, make):
    path = make(tmp_path / "blimp")
    found = read_examples(model, [path])
    assert (found.inputs, found.wanted, found.skipped) == ([A, B, C, D], None, 1)
    assert read_examples(model, [path], limit=1).inputs == [A, C]  # of each table


@pytest.mark.parametrize("model", [WRITER, FILLER], ids=["writes", "fills"])
def test_other_files_in_the_folder_do_no_harm(tmp_path, model):
    path = folder(tmp_path / "blimp")
    (path / "summary.csv").write_text("kind,accuracy\norder,0.9\n")
    (path / "data" / "results.jsonl").write_bytes(lines({"model": "5-gram"}))
    (path / "BLiMP.zip").write_bytes(archive(tmp_path / "b.zip").read_bytes())  # the same once more, and read once
    assert read_examples(model, [path]).inputs == [A, B, C, D]


def test_a_folder_with_the_archive_is_the_archive(tmp_path):
    (tmp_path / "blimp").mkdir()
    archive(tmp_path / "blimp" / "BLiMP.zip")
    (tmp_path / "blimp" / "README.md").write_text("pairs")
    assert read_examples(WRITER, [tmp_path / "blimp"]).inputs == [A, B, C, D]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty holds no minimal pairs: .* sentence_good and sentence_bad are needed"):
        read_examples(WRITER, [tmp_path / "empty"])


def test_one_table_and_several(tmp_path):
    data = folder(tmp_path / "x") / "data"
    one = read_examples(WRITER, [data / "second.jsonl.gz"])
    assert one.inputs == [Pair("g", "h"), Pair("i", "j")]
    assert read_examples(WRITER, [data / "second.jsonl.gz", data / "first.jsonl"]).inputs == [C, D, A, B]


def test_columns_that_are_named(tmp_path):
    table = tmp_path / "a.tsv"
    table.write_text("right\twrong\tUID\na b\tb a\tx\n")
    assert read_examples(WRITER, [table], Columns(good="right", bad="wrong")).inputs == [
        Pair("a b", "b a", {"kind": "x"})
    ]
    table.write_text("a b\tb a\n")
    header = Columns(header=("sentence_good", "sentence_bad"))
    assert read_examples(WRITER, [table], header).inputs == [Pair("a b", "b a")]
    with pytest.raises(InputError, match=r"a.tsv: no column 'right'; there are a b, b a"):
        read_examples(WRITER, [table], Columns(good="right"))


def test_what_has_no_pairs_is_a_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b"}\n')
    assert read_pairs([path]) is None
    assert read_examples(WRITER, [path]).inputs == [['{"text": "a b"}\n']]
    path.write_text("no JSON")
    assert read_examples(WRITER, [path]).inputs == [["no JSON"]]
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        packed.writestr("a.txt", "a b")
    with pytest.raises(InputError, match="is a zip archive: unpack it first"):
        read_examples(WRITER, [tmp_path / "b.zip"])


def test_errors_name_the_table(tmp_path):
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x/a.jsonl", FIRST)
        packed.writestr("x/b.jsonl", lines({"text": "a"}))
    with pytest.raises(InputError, match=r"b.zip, x/b.jsonl, line 1: no column 'sentence_good'; there are text"):
        read_examples(WRITER, [path])
    damaged = bytearray(path.read_bytes())
    damaged[60] ^= 255
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"x/a.jsonl cannot be read"):
        read_examples(WRITER, [path])
    with pytest.raises(InputError, match="no table; known are"):
        read_examples(WRITER, [tmp_path / "a.txt"], Columns(good="right", bad="wrong"))
    (tmp_path / "c.jsonl").write_bytes(lines(blimp("a", "")))
    with pytest.raises(InputError, match=r"c.jsonl: no pair of sentences"):
        read_examples(WRITER, [tmp_path / "c.jsonl"])


def test_a_changed_archive_is_refused_or_read(tmp_path):
    whole, path, draw = archive(tmp_path / "blimp.zip").read_bytes(), tmp_path / "b.zip", Random(0)
    refused = 0
    for _ in range(400):
        changed = bytearray(whole[: draw.choice((len(whole), draw.randrange(4, len(whole))))])
        for _ in range(draw.randrange(1, 4)):
            changed[-draw.randrange(1, min(200, len(changed)) + 1)] ^= 1 << draw.randrange(8)
        path.write_bytes(b"PK\3\4" + changed[4:])
        try:
            read_pairs([path])
        except InputError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_usual_ways_to_pack_are_unpacked(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "b.zip", "w", method) as packed:
        packed.writestr("a.jsonl", FIRST)
    with pytest.raises(InputError, match=rf"b\.zip, a\.jsonl is packed by method {method}"):
        read_pairs([tmp_path / "b.zip"])


def test_a_small_archive_of_a_large_table_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.jsonl", FIRST * ((64 << 20) // len(FIRST)))
    with limits(20, 256), pytest.raises(InputError, match=r"b\.zip: its tables have more than 16,777,216 bytes"):
        read_pairs([tmp_path / "b.zip"])


def test_an_archive_that_would_swell_is_refused(tmp_path, monkeypatch):
    from cutaway.evaluation import minimal_pair_files

    monkeypatch.setattr(minimal_pair_files, "LARGEST", 100)
    with pytest.raises(InputError, match="have more than 100 bytes; unpack it"):
        read_examples(WRITER, [archive(tmp_path / "blimp.zip")])


def test_a_classifier_reads_its_labels_as_before(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(blimp("a b", "b a", label=1)))
    assert read_examples(classifier(), [path], Columns(text="sentence_good")).inputs == ["a b"]


@pytest.mark.parametrize(("times", "right"), [(20, True), (49, True), (52, False), (400, False)])
def test_tables_may_be_fifty_times_as_large_as_their_archive(times, right, tmp_path, monkeypatch):
    """Beyond that it is a bomb; what is small may be packed as tightly as it likes."""
    path = tmp_path / "b.zip"
    line = json.dumps({"sentence_good": "a" * 40, "sentence_bad": "b" * 40}) + "\n"
    table = (line * 20_000).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x/a.jsonl", table)
    room = len(table) // times
    with zipfile.ZipFile(path, "a") as packed:
        packed.comment = b"x" * min(65_000, max(0, room - path.stat().st_size))
    size = path.stat().st_size
    assert (len(table) <= 50 * size) is right
    monkeypatch.setattr("cutaway.evaluation.minimal_pair_files.SMALL", 1000)
    if right:
        assert len(read_pairs([path], limit=3)[0]) == 3
    else:
        with pytest.raises(InputError, match=r"its tables have more than [\d,]+ bytes; unpack it"):
            read_pairs([path], limit=3)
    monkeypatch.setattr("cutaway.evaluation.minimal_pair_files.SMALL", 1 << 24)
    assert len(read_pairs([path], limit=3)[0]) == 3
