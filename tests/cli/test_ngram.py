"""`cutaway ngram`: train, test, sample, write and read again; ten words are enough, and too little is said."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from cutaway import cli
from cutaway.before import NGrams, sentences
from cutaway.before.ngrams.mixture import fit_mixture
from cutaway.before.ngrams.ngram_of_classes import train_class_ngrams
from cutaway.before.ngrams.smoothing import train_ngrams
from cutaway.before.units import read_ids, units_of
from cutaway.cli.ngram_view import print_indented

TEN = "check whether the battery ran down please and then stop"
OTHER = "check whether the program ran please"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ten.txt").write_text(TEN)
    Path("other.txt").write_text(OTHER)
    Path("one.txt").write_text("one")


def run(*args: object) -> Result:
    return CliRunner().invoke(cli.app, ["ngram", *map(str, args)])


def answered(*args: object) -> Any:
    ran = run(*args, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def refused(*args: object) -> str:
    ran = run(*args)
    assert ran.exit_code == 2, ran.output
    return ran.stderr


@pytest.mark.parametrize("order", [1, 3, 7])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "back-off"])
def test_it_says_what_the_model_says(order: int, smoothing: str):
    found = answered("ten.txt", "--order", order, "--smoothing", smoothing, "--test", "other.txt", "--start", "check")
    model = NGrams(sentences(TEN), order, smoothing=smoothing)
    bits = -sum(model.log_probabilities([*OTHER.split(), "<eos>"])) / math.log(2) / 7
    (test,) = found["tests"]
    assert test["bits_per_token"] == pytest.approx(bits)
    assert test["perplexity"] == pytest.approx(2**bits)
    assert (test["tokens"], test["bits_per_byte"]) == (7, None)
    assert answered("ten.txt", "--test", "ten.txt")["tests"][0]["bits_per_byte"] is None  # known, but not whole
    assert test["unknown"] == pytest.approx(1 / 7)
    assert found["sample"].split() == [word for word in model.generate(["check"], limit=30) if word != "<eos>"]
    assert found["text"] == {
        "bytes": len(TEN),
        "texts": 1,
        "tokens": 10,
        "kinds": 10,
        "too_little": True,
        "unparted": False,
    }


@pytest.mark.parametrize("unit", ["bytes", "books"])
def test_where_the_tokens_are_the_text_bits_are_counted_by_byte(unit: str):
    found = answered("ten.txt", "--unit", unit, "--test", "other.txt")
    (test,) = found["tests"]
    assert test["bits_per_byte"] == pytest.approx(test["bits_per_token"] * test["tokens"] / len(OTHER))
    shown = run("ten.txt", "--unit", unit, "--test", "other.txt").stdout
    assert f"{test['bits_per_byte']:.3f} bits per byte" in shown


def test_known_and_unknown_words_are_told_apart():
    (test,) = answered("ten.txt", "--test", "other.txt")["tests"]
    each = -np.array(NGrams(sentences(TEN), 3).log_probabilities([*OTHER.split(), "<eos>"])) / math.log(2)
    strange = OTHER.split().index("program")
    known = np.delete(each, strange).mean()
    assert test["bits_per_known_token"] == pytest.approx(known)
    assert test["perplexity_of_known"] == pytest.approx(2**known)
    assert test["bits_per_unknown_token"] == pytest.approx(each[strange])
    shown = run("ten.txt", "--test", "other.txt").stdout
    assert f"with ends; known words {known:.3f} bits each, perplexity {2**known:.1f}\n" in shown
    assert f"14.3% are unknown, {each[strange]:.3f} bits each; with them {each.mean():.3f} bits each, perpl" in shown
    (test,) = answered("ten.txt", "--test", "ten.txt")["tests"]
    assert (test["bits_per_known_token"], test["bits_per_unknown_token"]) == (test["bits_per_token"], None)
    assert "unknown" not in run("ten.txt", "--test", "ten.txt").stdout
    (part, _) = answered("ten.txt", "--classes", 3, "--mix", "other.txt", "--test", "other.txt")["tests"][0]["parts"]
    assert part["bits_per_known_token"] == pytest.approx(known)
    assert part["bits_per_unknown_token"] == pytest.approx(each[strange])


def test_infinitely_many_bits_are_null():
    lines = ["ngram 1=3", "", "\\1-grams:", "-0.3\tcheck", "-0.3\t</s>", "-99\t<s>", "", "\\end\\"]
    Path("never.arpa").write_text("\n".join(["\\data\\", *lines]))  # it has no <unk>
    (test,) = answered("never.arpa", "--test", "other.txt")["tests"]
    assert (test["bits_per_token"], test["perplexity"], test["bits_per_unknown_token"]) == (None, None, None)
    assert test["bits_per_known_token"] == pytest.approx(0.3 * math.log2(10))
    assert "∞ bits each, perplexity ∞\n" in run("never.arpa", "--test", "other.txt").stdout


def test_nobody_says_unk():
    Path("rare.txt").write_text("check <unk> " * 20 + "stop")
    cut = units_of("words")
    text = read_ids(cut, [Path("rare.txt")])
    assert cut.unknown in train_ngrams(text.ids, len(cut.names), 1, end=cut.end).generate(limit=50)
    assert "<unk>" not in NGrams(sentences("check <unk> " * 20 + "stop"), 1).generate(limit=50)
    for classes in ([], ["--classes", 2]):
        assert "<unk>" not in answered("rare.txt", "--order", 1, "--max-tokens", 50, *classes)["sample"]


def test_unknown_words_of_the_start_are_named():
    assert "--start: zebra, yak not among the 10 different words of the model" in refused(
        "ten.txt", "--start", "zebra the yak zebra"
    )
    assert "--start: Z not among" in refused("ten.txt", "--unit", "characters", "--start", "Zc")
    assert answered("ten.txt", "--start", "then")["sample"].startswith("then")
    assert "not among the 1 different word of" in refused("one.txt", "--start", "two")


def test_characters_that_were_not_known_cost_no_bytes():
    assert answered("ten.txt", "--unit", "characters", "--test", "ten.txt")["tests"][0]["bits_per_byte"] > 0
    (test,) = answered("ten.txt", "--unit", "characters", "--test", "other.txt")["tests"]
    assert (test["bits_per_byte"], test["unknown"] > 0) == (None, True)


def test_ten_words_are_enough_and_that_it_is_little_is_said():
    shown = run("ten.txt", "--max-tokens", 5).stdout
    assert "10 words, 10 different, in 1 text\n" in shown
    assert "too little to go by: below 10,000 words" in shown
    Path("long.txt").write_text(TEN * 1200)
    assert "too little" not in run("long.txt").stdout
    shown = run("ten.txt", "--classes", 3).stdout
    assert "check battery please stop" in shown
    assert "--classes 11: the text has 10 different tokens" in refused("ten.txt", "--classes", 11)


def test_a_test_that_was_learnt_and_words_without_spaces_are_pointed_out():
    shown = run("ten.txt", "--test", "ten.txt", "--test", "other.txt").stdout
    assert shown.count("learnt from this very text") == 1
    assert [test["learnt"] for test in answered("ten.txt", "--test", "./ten.txt", "--test", "other.txt")["tests"]] == [
        True,
        False,
    ]
    answered("ten.txt", "--out", "model")
    assert not answered("model", "--test", "ten.txt")["tests"][0]["learnt"]  # who knows
    Path("chinese.txt").write_text("今天天气很好我们去公园玩\n" * 9)
    assert "--unit characters tells more" in run("chinese.txt").stdout
    assert "--unit characters" not in run("chinese.txt", "--unit", "characters").stdout + shown


def test_that_a_test_is_little_is_said():
    few = "below 1,000 words a tenth of a bit and more is chance"
    assert "1 word, 1 different, in 1 text\n" in (shown := run("one.txt", "--test", "one.txt").stdout)
    assert few in shown
    assert few not in run("one.txt").stdout
    shown = run("ten.txt", "--classes", 2, "--mix", "other.txt").stdout
    assert "mixed by 7 words with ends, too little: below 1,000 the shares are partly chance" in shown
    Path("long.txt").write_text(f"{TEN} " * 100)
    assert few not in run("ten.txt", "--test", "long.txt").stdout
    assert "partly chance" not in run("ten.txt", "--classes", 2, "--mix", "long.txt").stdout


def test_a_mixture_that_costs_known_words_says_so():
    """Classes keep more for <unk>, of which the text that is mixed by has many."""
    Path("text.txt").write_text("the dog ran home and the cat sat down there\n" * 9)
    Path("mix.txt").write_text("a hen was here once\n" * 9)
    (test,) = answered("text.txt", "--classes", 2, "--mix", "mix.txt", "--test", "text.txt")["tests"]
    costs = test["bits_per_known_token"] - min(part["bits_per_known_token"] for part in test["parts"])
    assert costs > 0.1
    said = "on known words the mixture is worse than its best part: by"
    assert (
        f"{said} {costs:.3f} bits\n" in run("text.txt", "--classes", 2, "--mix", "mix.txt", "--test", "text.txt").stdout
    )
    assert said not in run("text.txt", "--classes", 2, "--mix", "mix.txt", "--test", "mix.txt").stdout


def test_what_has_no_room_goes_on_behind_the_margin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from rich.console import Console

    monkeypatch.setattr("cutaway.pictures.terminal_tables.stdout", lambda: Console(width=30))
    print_indented(["model    [red] 3-gram model of many words", "         and\nmore"], 9)
    assert capsys.readouterr().out == (
        "model    [red] 3-gram model of\n         many words\n         and\n         more\n"
    )


def test_classes_and_their_mixture():
    Path("text.txt").write_text("the dog ran home\na cat sat down\nthe cow sat home\na hen ran down\n" * 3)
    Path("held-out.txt").write_text("the cat ran home\na cow sat home\nthe hen ran down\na dog sat down\n")
    options = ["--classes", 3, "--split", "line", "--order", 2, "--test", "held-out.txt"]
    found = answered("text.txt", *options, "--mix", "held-out.txt")
    cut = units_of("words")
    text = read_ids(cut, [Path("text.txt")], split="line")
    held_out = read_ids(cut, [Path("held-out.txt")], split="line", new=False).ids
    classes = train_class_ngrams(text.ids, len(cut.names), 2, 3, end=cut.end)
    words = train_ngrams(text.ids, len(cut.names), 2, end=cut.end)
    mixed = fit_mixture([words, classes], held_out)
    (test,) = found["tests"]

    def bits(model: Any) -> float:
        return -float(np.mean(model.log_probabilities(held_out))) / math.log(2)

    assert found["model"] == str(mixed)
    assert test["bits_per_token"] == pytest.approx(bits(mixed))
    assert [part["bits_per_token"] for part in test["parts"]] == pytest.approx([bits(words), bits(classes)])
    assert test["bits_per_token"] <= min(part["bits_per_token"] for part in test["parts"]) + 1e-9
    each = found["classes"]["each"]
    words_of_classes = sorted(word for one in each for word in one["members"])
    assert words_of_classes == sorted("the a dog cat cow hen ran sat home down".split())
    assert not np.allclose(mixed.shares, fit_mixture([words, classes], text.ids).shares, atol=0.01)


@pytest.mark.parametrize("classes", [[], ["--classes", 3]])
def test_what_is_written_is_read(classes: list[object]):
    trained = answered("ten.txt", *classes, "--out", "model", "--test", "other.txt")
    again = answered("model", "--test", "other.txt")
    for key in ("model", "ngrams", "tests", "sample", "classes", "unit"):
        assert again[key] == trained[key]
    assert (trained["out"], again["text"]) == ("model", None)
    assert "--out model is not empty" in refused("ten.txt", "--out", "model")
    assert run("ten.txt", "--unit", "bytes", "--out", "model", "--force").exit_code == 0
    assert answered("model")["unit"] == "bytes"
    assert "leave out --order" in refused("model", "--order", 2)


def test_arpa_files_out_and_in():
    trained = answered("ten.txt", "--out", "model.arpa", "--test", "other.txt")
    again = answered("model.arpa", "--test", "other.txt", "--start", "the")
    assert again["tests"][0]["bits_per_token"] == pytest.approx(trained["tests"][0]["bits_per_token"], rel=1e-6)
    assert again["sample"].startswith("the ")
    assert "not classes" in refused("ten.txt", "--classes", 3, "--out", "other.arpa")
    for unit in ("characters", "bytes", "books"):  # their names would be read as words
        assert f"not --unit {unit}" in refused("ten.txt", "--unit", unit, "--out", "other.arpa")
    assert run("ten.txt", "--unit", "words", "--out", "other.arpa").exit_code == 0
    assert "there is no folder nowhere" in refused("ten.txt", "--out", "nowhere/model.arpa")
    assert not Path("nowhere").exists()
    assert "name it model.arpa" in refused("ten.txt", "--out", "model.arpa.gz")


def test_a_word_that_an_arpa_file_has_already_is_refused_before_anything_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cutaway.before.ngrams.smoothing.count_ngrams", lambda *args, **more: 1 / 0)
    Path("marked.txt").write_text("so <s> it is")
    said = refused("marked.txt", "--out", "model.arpa")
    assert "the name '<s>' is given to two ids" in said
    assert "write a folder" in said
    Path("marked.txt").write_text("so </s> it is")
    assert "the name '</s>' is given to two ids" in refused("marked.txt", "--out", "model.arpa")


def test_a_packed_arpa_file_is_a_model():
    trained = answered("ten.txt", "--out", "model.arpa", "--test", "other.txt")
    Path("model.arpa.gz").write_bytes(gzip.compress(Path("model.arpa").read_bytes()))
    again = answered("model.arpa.gz", "--test", "other.txt")
    assert (again["text"], again["ngrams"]) == (None, trained["ngrams"])
    assert again["tests"][0]["bits_per_token"] == pytest.approx(trained["tests"][0]["bits_per_token"], rel=1e-6)
    Path("endless.arpa.gz").write_bytes(gzip.compress(b"\\data\\\nngram 1=1\n\\1-grams:\n-99 <s>\n\\end\\\n"))
    assert "endless.arpa.gz has no </s>" in refused("endless.arpa.gz")


def test_a_model_is_no_text():
    answered("ten.txt", "--out", "model")
    answered("ten.txt", "--out", "model.arpa")
    Path("model.arpa.gz").write_bytes(gzip.compress(Path("model.arpa").read_bytes()))
    for model in ("model", "model.arpa", "model.arpa.gz"):
        assert refused("ten.txt", model).startswith(f"error: {model} is a model and not a text: give it alone")
        assert f"--test {model} is a model: name a text" in refused("ten.txt", "--test", model)
        assert f"--mix {model} is a model: name a text" in refused("ten.txt", "--classes", 2, "--mix", model)


def test_what_cannot_be_written_is_refused_before_anything_is_read():
    for out in ("ten.txt/x", "ten.txt/x/y", "x" * 300):
        assert refused("missing.txt", "--out", out).startswith(f"error: {out} cannot be written: ")
    assert "ten.txt cannot be written: Not a directory" in refused("missing.txt", "--out", "ten.txt/x.arpa")
    assert "missing.txt cannot be read" in refused("missing.txt", "--out", "new/folder")
    assert not Path("new").exists()


def test_folders_of_others_are_left_alone():
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("a")
    for force in ([], ["--force"]):
        assert "holds other files and no model" in refused("ten.txt", "--out", "mine", *force)
    assert "is a file" in refused("ten.txt", "--out", "ten.txt")
    answered("ten.txt", "--out", "model")
    Path("model/thesis.txt").write_text("a")
    assert "has other files" in refused("ten.txt", "--out", "model", "--force")
    assert Path("model/thesis.txt").exists()


def test_a_model_is_there_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch):
    before = answered("ten.txt", "--order", 5, "--unit", "bytes", "--out", "model", "--test", "other.txt")

    def stopped(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cutaway.before.ngrams.smoothing.smoothed", stopped)
        for more in (["--out", "new"], ["--out", "model", "--force"]):
            assert run("other.txt", *more).exit_code == 130
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["model", "one.txt", "other.txt", "ten.txt"]
    assert answered("model", "--test", "other.txt")["tests"] == before["tests"]
    answered("ten.txt", "--order", 2, "--out", "model", "--force")
    kept = sorted(path.name for path in Path("model").iterdir())
    tables = [f"{kind}{n}.npy" for kind in ("keys", "log_p", "log_weight") for n in (1, 2)]
    assert kept == sorted([*tables, "cut.json", "ngrams.json"])  # nothing of order 5, and no counts
    Path("model/ngrams.json").unlink()
    assert "--force" in refused("ten.txt", "--out", "model")
    assert answered("ten.txt", "--out", "model", "--force")["out"] == "model"


def test_wrong_input_is_named():
    Path("empty.txt").write_text("")
    Path("zeros.bin").write_bytes(bytes(100))
    Path("odd.bin").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    for name, said in (("empty.txt", "is empty"), ("zeros.bin", "is binary"), ("odd.bin", "not UTF-8")):
        for args in ([name], ["ten.txt", name], ["ten.txt", "--test", name]):
            assert refused(*args).startswith(f"error: {name}")
            assert said in refused(*args)
    assert "cannot be read" in refused("missing.txt")
    assert "--unit 'char' is neither words, characters nor bytes" in refused("ten.txt", "--unit", "char")
    assert "--mix needs --classes" in refused("ten.txt", "--mix", "other.txt")
    assert "--most needs --classes" in refused("ten.txt", "--most", 5)
    for name in ("ten.txt", Path("ten.txt").absolute()):
        assert "know by heart" in refused("ten.txt", "--classes", 2, "--mix", name)
    assert "a mixture cannot be written" in refused("ten.txt", "--classes", 2, "--mix", "other.txt", "--out", "m")
    assert not Path("m").exists()
