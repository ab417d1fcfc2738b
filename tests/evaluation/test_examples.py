"""From files to examples: by task, by columns, and with errors that name both."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from helpers.classifiers import classifier, wordpiece
from helpers.tiny_models import tiny
from tokenizers import AddedToken

from cutaway.decoding.translate import tag_for
from cutaway.errors import InputError
from cutaway.evaluation.examples import Columns, picture_numbers, read_examples

TRANSLATOR, WRITER, CLASSIFIER = tiny("transformer"), tiny("gpt2"), classifier()
TAGGER = tiny("bert", task="tag", n_classes=2, labels=("O", "B-X"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


# --- translation ------------------------------------------------------------------------------------------------------


def test_two_parallel_files(tmp_path):
    paths = [write(tmp_path / "a.en", "one\ntwo\n\nfour\n"), write(tmp_path / "a.de.gz", "eins\nzwei\ndrei\nvier\n")]
    found = read_examples(TRANSLATOR, paths)
    assert (found.inputs, found.wanted, found.skipped) == (["one", "two", "four"], ["eins", "zwei", "vier"], 1)
    assert read_examples(TRANSLATOR, paths, limit=2).inputs == ["one", "two"]


TABLE = "en\tde\tnote\none\teins\tx\ntwo\tzwei\ty\nempty\t\tz\n"


@pytest.mark.parametrize(
    ("columns", "to"),
    [(Columns("en", "de"), None), (Columns(source="en"), "de")],
)
def test_columns_that_are_named(tmp_path, columns, to):
    found = read_examples(TRANSLATOR, [write(tmp_path / "a.tsv", TABLE)], columns, to=to)
    assert (found.inputs, found.wanted, found.skipped) == (["one", "two"], ["eins", "zwei"], 1)


def test_of_two_columns_the_wanted_language_is_the_target(tmp_path):
    path = write(tmp_path / "a.tsv", "one\teins\ntwo\tzwei\n")
    header = Columns(header=("en", "de"))
    assert read_examples(TRANSLATOR, [path], header).wanted == ["eins", "zwei"]
    assert read_examples(TRANSLATOR, [path], header, to="de").wanted == ["eins", "zwei"]
    assert read_examples(TRANSLATOR, [path], header, to="en").wanted == ["one", "two"]
    lines = [json.dumps({"target": b, "source": a}) for a, b in (("one", "eins"), ("two", "zwei"))]
    found = read_examples(TRANSLATOR, [write(tmp_path / "a.jsonl", "\n".join(lines))])
    assert (found.inputs, found.wanted) == (["one", "two"], ["eins", "zwei"])


def test_columns_that_nobody_named_are_asked_for(tmp_path):
    path = write(tmp_path / "a.tsv", TABLE)
    with pytest.raises(InputError, match=r"a.tsv has the columns en, de, note: say which are source and target"):
        read_examples(TRANSLATOR, [path])
    with pytest.raises(InputError, match=r"en, de, note: say which holds the labels with --label-column"):
        read_examples(CLASSIFIER, [path])
    with pytest.raises(InputError, match=r"a.tsv has no column 'fr'; there are en, de, note"):
        read_examples(TRANSLATOR, [path], Columns("en", "fr"))
    with pytest.raises(InputError, match="3 files: give one table"):
        read_examples(TRANSLATOR, [path] * 3)


def test_the_tag_of_a_language():
    tokenizer = wordpiece()
    assert tag_for(tokenizer, None) is None  # it knows but one
    with pytest.raises(InputError, match="to='de': this model has no language tags"):
        tag_for(tokenizer, "de")
    tokenizer.backend.add_special_tokens([AddedToken("<2de>"), AddedToken(">>fra<<")])
    assert tag_for(tokenizer, "de") == tokenizer.id("<2de>")
    assert tag_for(tokenizer, "fra") == tokenizer.id(">>fra<<")
    with pytest.raises(InputError, match=r"choose to=de or to=fra"):
        tag_for(tokenizer, None)
    with pytest.raises(InputError, match="to='en': this model knows de, fra"):
        tag_for(tokenizer, "en")


# --- texts ------------------------------------------------------------------------------------------------------------


def test_documents(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n\nthree\n")
    assert read_examples(WRITER, [path]).inputs == [["one\ntwo\n\nthree\n"]]
    assert read_examples(WRITER, [path], split="line").inputs == [["one"], ["two"], ["three"]]
    assert read_examples(WRITER, [path], split="line", limit=5).inputs == [["one"], ["tw"]]
    assert read_examples(WRITER, [path], limit=5).inputs == [["one\nt"]]


def test_a_document_that_is_cut_short_in_one_of_its_pieces_ends_there(tmp_path, monkeypatch):
    monkeypatch.setattr("cutaway.data.text_files.PIECE", 16)
    monkeypatch.setattr("cutaway.data.text_files.WINDOW", 8)
    text = "some words stand in each of the pieces of this\ndocument, and more words behind them\n" * 3
    path = write(tmp_path / "a.txt", text)
    (whole,) = read_examples(WRITER, [path]).inputs
    assert len(whole) > 5
    assert "".join(whole) == text
    for limit in (1, 17, 60, len(text) - 1, len(text) + 1):
        (cut,) = read_examples(WRITER, [path], limit=limit).inputs
        assert "".join(cut) == text[:limit]


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels(tmp_path):
    path = write(tmp_path / "a.tsv", "sentence\tlabel\na b\tyes\nc\tno\n")
    found = read_examples(CLASSIFIER, [path])
    assert (found.inputs, found.wanted) == (["a b", "c"], ["yes", "no"])
    found = read_examples(CLASSIFIER, [path], limit=1)
    assert (found.inputs, found.wanted) == (["a b"], ["yes"])
    path = write(tmp_path / "b.csv", 'id,text,other,gold\n1,"a, b",c,0\n2,d,e,1\n')
    found = read_examples(CLASSIFIER, [path], Columns(label="gold", second="other"))
    assert (found.inputs, found.wanted) == ([("a, b", "c"), ("d", "e")], ["0", "1"])
    with pytest.raises(InputError, match="say which holds the labels"):
        read_examples(CLASSIFIER, [path])
    path = write(tmp_path / "c.tsv", "a\tb\tlabel\n1\t2\t3\n")
    with pytest.raises(InputError, match="say which holds the text"):
        read_examples(CLASSIFIER, [path])


def test_tags(tmp_path):
    rows = [{"words": ["a", "b"], "tags": ["O", "B-X"]}, {"words": "c d", "tags": "O O"}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    found = read_examples(TAGGER, [path])
    assert (found.inputs, found.wanted) == ([["a", "b"], ["c", "d"]], [["O", "B-X"], ["O", "O"]])


def test_a_model_without_a_score(tmp_path):
    with pytest.raises(InputError, match="no score is known for a bert model with task='hidden'"):
        read_examples(tiny("bert", task="hidden"), [tmp_path])


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_in_archives(tmp_path):
    grey = tiny("vit", n_channels=1)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    labels = np.array([0, 3, 2, 1, 6])
    np.savez(tmp_path / "a.npz", images=pixels, labels=labels)
    (tmp_path / "images").write_bytes(struct.pack(">4B3i", 0, 0, 8, 3, 5, 8, 8) + pixels.tobytes())
    (tmp_path / "labels").write_bytes(struct.pack(">4Bi", 0, 0, 8, 1, 5) + labels.astype(np.uint8).tobytes())
    for paths in ([tmp_path / "a.npz"], [tmp_path / "images", tmp_path / "labels"]):
        found = read_examples(grey, paths, limit=4)
        assert np.array_equal(found.inputs, pixels[:4, None])
        assert [int(name) for name in found.wanted] == [0, 3, 2, 1]
    with pytest.raises(InputError, match="pictures come as a folder"):
        read_examples(grey, [tmp_path / "images"])


def test_pictures_in_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, value in (("cat", 10), ("dog", 200)):
        (tmp_path / "set" / name).mkdir(parents=True)
        image.new("RGB", (16, 16), (value, 0, 0)).save(tmp_path / "set" / name / "1.png")
    found = read_examples(tiny("vit"), [tmp_path / "set"])
    assert found.inputs.shape == (2, 3, 8, 8)
    assert found.wanted == ["cat", "dog"]


def test_a_models_own_numbers_come_before_those_of_others(tmp_path):
    others = {"image_mean": [0.5], "image_std": [0.5]}
    write(tmp_path / "preprocessor_config.json", json.dumps(others))
    for own in ({}, {"pixel_mean": [0.1]}):
        write(tmp_path / "config.json", json.dumps(own))
        assert picture_numbers(tmp_path) == {"mean": [0.5], "std": [0.5]}
    write(tmp_path / "config.json", json.dumps({"pixel_mean": [0.1, 0.2], "pixel_std": [1, 2]}))
    assert picture_numbers(tmp_path) == {"mean": [0.1, 0.2], "std": [1.0, 2.0]}


def test_how_bytes_become_numbers_stands_beside_a_model(tmp_path):
    assert picture_numbers(tmp_path) == {}
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}')
    assert picture_numbers(tmp_path) == {"mean": [0.1, 0.2, 0.3], "std": [1.0, 1.0, 1.0]}
