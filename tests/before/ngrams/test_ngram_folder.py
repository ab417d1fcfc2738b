"""n-gram models on disk: they say the same when they are read, and a folder that is not whole is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from cutaway.before.ngrams.ngram_folder import Counted, is_ngram_folder, read_ngram_folder, write_ngram_folder
from cutaway.before.ngrams.ngram_of_classes import train_class_ngrams
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.before.units import TextIds, Units, read_ids, units_of
from cutaway.errors import CheckpointError, InputError
from cutaway.tokens import train_tokenizer

TEXT = "check whether the battery ran down please\ncheck whether the program ran please\n"


def trained(folder: Path, unit: str, classes: int | None = None) -> tuple[Counted, Units, TextIds]:
    (folder / "text.txt").write_text(TEXT)
    cut = units_of(unit)
    text = read_ids(cut, [folder / "text.txt"], split="line")
    size = len(cut.names)
    if classes is None:
        return train_ngrams(text.ids, size, 3, end=cut.end), cut, text
    return train_class_ngrams(text.ids, size, 3, classes, end=cut.end), cut, text


@pytest.mark.parametrize("unit", ["words", "characters", "bytes", "books"])
@pytest.mark.parametrize("classes", [None, 3])
def test_a_model_is_read_as_it_was_written(tmp_path, unit, classes):
    model, cut, text = trained(tmp_path, unit, classes)
    write_ngram_folder(model, cut, tmp_path / "model")
    assert is_ngram_folder(tmp_path / "model")
    again, its_cut = read_ngram_folder(tmp_path / "model")
    assert its_cut.names == cut.names
    assert np.array_equal(again.log_probabilities(text.ids), model.log_probabilities(text.ids))
    asked = its_cut.ids("check", False).tolist()
    assert its_cut.join(again.generate(asked)) == cut.join(model.generate(asked))


def test_an_arpa_file_has_the_words(tmp_path):
    model, cut, text = trained(tmp_path, "words")
    write_ngram_folder(model, cut, tmp_path / "model.arpa")
    again, its_cut = read_ngram_folder(tmp_path / "model.arpa")
    assert its_cut.names == cut.names
    ids = read_ids(its_cut, [tmp_path / "text.txt"], split="line", new=False).ids
    np.testing.assert_allclose(again.log_probabilities(ids), model.log_probabilities(text.ids), rtol=1e-6)


def test_what_has_no_place_in_an_arpa_file(tmp_path):
    model, cut, _ = trained(tmp_path, "words", 3)
    with pytest.raises(InputError, match="an ARPA file is one of words, with no place for classes"):
        write_ngram_folder(model, cut, tmp_path / "model.arpa")
    for unit, odd in {"characters": "characters", "bytes": "bytes", "books": "tokens"}.items():
        model, cut, _ = trained(tmp_path, unit)
        with pytest.raises(InputError, match=f"no place for {odd}"):
            write_ngram_folder(model, cut, tmp_path / "model.arpa")
    assert not (tmp_path / "model.arpa").exists()


def test_another_model_takes_the_place_of_one(tmp_path):
    for classes in (None, 3, None):
        model, cut, text = trained(tmp_path, "words", classes)
        write_ngram_folder(model, cut, tmp_path / "model")
        again, _ = read_ngram_folder(tmp_path / "model")
        assert str(again) == str(model)
        assert np.array_equal(again.log_probabilities(text.ids), model.log_probabilities(text.ids))


@pytest.mark.parametrize("broken", ["unit", "names", "more", "gone", "mark"])
def test_a_damaged_folder_is_refused(tmp_path, broken):
    model, cut, _ = trained(tmp_path, "words")
    write_ngram_folder(model, cut, tmp_path / "model")
    path = tmp_path / "model" / "cut.json"
    about = json.loads(path.read_text())
    match broken:
        case "unit":
            del about["unit"]
        case "names":
            about["names"] = 3
        case "more":
            about["names"].append("one more")
        case "mark":
            about["names"][1] = "end"
        case "gone":
            (tmp_path / "model" / "log_p2.npy").unlink()
    path.write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"log_p2.npy" if broken == "gone" else "model"):
        read_ngram_folder(tmp_path / "model")


def test_an_arpa_file_without_an_end_is_refused(tmp_path):
    ids = np.array([0, 1, 0])
    write_ngram_folder(train_ngrams(ids, 2, 1), cut_with(["a", "b"]), tmp_path / "model.arpa")
    with pytest.raises(CheckpointError, match=r"model.arpa has no </s>"):
        read_ngram_folder(tmp_path / "model.arpa")


def cut_with(names: list[str]) -> Units:
    cut = units_of("words")
    cut.names = names
    return cut


def test_a_model_of_tokens_brings_its_tokenizer_along(tmp_path, monkeypatch):
    """Also where its name means another one by now, or none."""
    for name, merges in {"here": ["the program ran down"], "there": ["check whether please"]}.items():
        train_tokenizer(merges * 9, kind="bpe", vocab_size=270).save(tmp_path / name / "tokenizer")
    monkeypatch.chdir(tmp_path / "here")
    model, cut, text = trained(tmp_path, "tokenizer")
    write_ngram_folder(model, cut, tmp_path / "here" / "model")
    for elsewhere in (tmp_path / "there", tmp_path):
        monkeypatch.chdir(elsewhere)
        again, its_cut = read_ngram_folder(tmp_path / "here" / "model")
        assert np.array_equal(read_ids(its_cut, [tmp_path / "text.txt"], split="line", new=False).ids, text.ids)
        assert np.array_equal(again.log_probabilities(text.ids), model.log_probabilities(text.ids))
