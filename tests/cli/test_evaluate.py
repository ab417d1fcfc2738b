"""`cutaway evaluate`: the whole way from files to scores, for every kind of model."""

import json
from dataclasses import asdict, astuple
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.classifiers import LABELS, SENTENCES, TAGGED, classifier, wordpiece
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import TEXTS, translator
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import load, save
from cutaway.errors import InputError
from cutaway.evaluation import LastWord, Pair, Schema, evaluate
from cutaway.model.precision import with_precision
from cutaway.tokens.tokenizer_training import train_tokenizer

FEW = ["--resamples", "20"]


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(*args: object) -> str:
    result = CliRunner().invoke(cli.app, ["evaluate", *map(str, args)])
    assert result.exit_code == 0, result.output
    return result.stdout


def said(*args: object) -> dict:
    return json.loads(run(*args, *FEW, "--json", "--device", "cpu"))


def test_a_translator_in_8_bits(tmp_path):
    model, tokenizer = translator(), byte_level()
    save(model, tmp_path / "model", tokenizer)
    sources = [text for text in TEXTS if text]
    (tmp_path / "a.en").write_text("\n".join(sources) + "\n")
    (tmp_path / "a.de").write_text("\n".join(reversed(sources)) + "\n")
    files = f"{tmp_path}/a.en,{tmp_path}/a.de"
    found = said(tmp_path / "model", files, "--dtype", "int8")
    eight = with_precision(load(tmp_path / "model"), "int8")
    assert found["scores"] == evaluate(eight, tokenizer, sources, sources[::-1]).scores
    assert found["scores"] != said(tmp_path / "model", files)["scores"]
    assert found["dtype"] == "int8"


def test_a_translator(tmp_path):
    model, tokenizer = translator(), byte_level()
    save(model, tmp_path / "model", tokenizer)
    sources = [text for text in TEXTS if text]
    (tmp_path / "a.en").write_text("\n".join(sources) + "\n")
    (tmp_path / "a.de").write_text("\n".join(reversed(sources)) + "\n")
    found = said(tmp_path / "model", f"{tmp_path}/a.en,{tmp_path}/a.de", "--beam", 2)
    expected = evaluate(model, tokenizer, sources, sources[::-1], beam=2)
    assert found["scores"] == expected.scores
    assert found["signatures"] == expected.signatures
    assert (found["n"], found["settings"]["beam"], found["task"]) == (6, 2, "translate")
    assert said(tmp_path / "model", tmp_path / "a.en", tmp_path / "a.de", "--beam", 2)["scores"] == found["scores"]
    pruned = said(tmp_path / "model", f"{tmp_path}/a.en,{tmp_path}/a.de", "--beam", 4, "--prune", 0.001)
    assert pruned["settings"]["prune"] == 0.001
    assert pruned["scores"] == evaluate(model, tokenizer, sources, sources[::-1], beam=4, prune=0.001).scores
    table = tmp_path / "a,b.tsv"  # a file that is there is one file
    table.write_text("".join(f"{a}\t{b}\n" for a, b in zip(sources, sources[::-1], strict=True)))
    again = said(tmp_path / "model", table, "--beam", 2, "--header", "en,de", "--to", "de")
    assert again["scores"] == found["scores"]
    assert said(tmp_path / "model", table, "--header", "en,de", "--limit", 3, "--beam", 1)["n"] == 3


def test_a_model_that_fills_blanks(tmp_path):
    tokenizer = train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=60)
    model = tiny("bert", task="pretrain", vocab_size=tokenizer.vocab_size, dtype=torch.float32)
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / "a.txt").write_text("\n".join(SENTENCES) + "\n")
    found = said(tmp_path / "model", tmp_path / "a.txt", "--split", "line", "--seed", 3, "--context", 8)
    expected = evaluate(model, tokenizer, SENTENCES, context=8, seed=3, resamples=20)
    assert found["scores"] == pytest.approx(expected.scores)
    assert (found["n"], found["settings"]["context"], found["settings"]["seed"]) == (6, 8, 3)
    assert "6 documents" in run(tmp_path / "model", tmp_path / "a.txt", "--split", "line", *FEW)


def test_a_language_model(tmp_path):
    model, tokenizer = tiny("gpt2", vocab_size=400, start_id=1, dtype=torch.float32), byte_level()
    save(model, tmp_path / "model", tokenizer)
    text = "The quick brown fox jumps over the lazy dog.\n" * 5
    (tmp_path / "a.txt").write_text(text)
    found = said(tmp_path / "model", tmp_path / "a.txt", "--context", 16, "--stride", 4)
    expected = evaluate(model, tokenizer, [text], context=16, stride=4)
    assert found["scores"] == pytest.approx(expected.scores)
    assert found["settings"] == expected.settings
    lines = said(tmp_path / "model", tmp_path / "a.txt", "--split", "line", "--no-start")
    assert lines["n"] == 5
    assert lines["settings"]["tokens"] == 5 * (len(tokenizer.encode(text.splitlines()[0], special=False)) - 1)


def test_a_classifier(tmp_path):
    model, tokenizer = classifier(dtype=torch.float32), wordpiece()
    save(model, tmp_path / "model", tokenizer)
    wanted = [0, 1, 2, 0, 1, 2]
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(SENTENCES, wanted, strict=True))
    (tmp_path / "a.tsv").write_text("sentence\tlabel\n" + rows)
    found = said(tmp_path / "model", tmp_path / "a.tsv")
    assert found["scores"] == pytest.approx(evaluate(model, tokenizer, SENTENCES, wanted).scores)


def test_texts_that_are_cut_are_told(tmp_path):
    save(classifier(max_len=6, dtype=torch.float32), tmp_path / "model", wordpiece())
    (tmp_path / "a.tsv").write_text("sentence\tlabel\na dog saw the man\t0\nit\t1\n")
    note = "1 of 2 texts are longer than this model reads and were cut, of a pair the longer one first"
    assert note in run(tmp_path / "model", tmp_path / "a.tsv", *FEW)
    assert said(tmp_path / "model", tmp_path / "a.tsv")["notes"] == [note]


def test_a_decoder_that_was_trained_here_reads_its_ends(tmp_path):
    model, tokenizer = classifier("gpt2", vocab_size=400, dtype=torch.float32), byte_level()
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / "model" / "recipe.toml").write_text("")
    rows = [{"text": text, "label": i % 3} for i, text in enumerate(SENTENCES)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    expected = evaluate(model, tokenizer, SENTENCES, [row["label"] for row in rows], as_trained=True)
    assert said(tmp_path / "model", tmp_path / "a.jsonl")["scores"] == pytest.approx(expected.scores)


def test_a_tagger(tmp_path):
    model, tokenizer = tiny("bert", task="tag", n_classes=3, labels=LABELS, dtype=torch.float32), wordpiece()
    save(model, tmp_path / "model", tokenizer)
    tags = [["O"] * len(sentence) for sentence in TAGGED]
    rows = [{"words": words, "tags": its} for words, its in zip(TAGGED, tags, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = said(tmp_path / "model", tmp_path / "a.jsonl")
    assert found["scores"] == evaluate(model, tokenizer, TAGGED, tags).scores


def test_pictures(tmp_path):
    model = tiny("vit", dtype=torch.float32, n_channels=1)
    save(model, tmp_path / "model")
    (tmp_path / "model" / "preprocessor_config.json").write_text('{"image_mean": [0.3], "image_std": [0.2]}')
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    labels = np.arange(30) % 7
    np.savez(tmp_path / "a.npz", images=pixels, labels=labels)
    found = said(tmp_path / "model", tmp_path / "a.npz")
    expected = evaluate(model, None, pixels[:, None], labels, mean=[0.3], std=[0.2])
    assert (found["scores"], found["settings"]) == (expected.scores, expected.settings)


def test_the_page_shows_scores_intervals_and_signatures(tmp_path):
    save(translator(), tmp_path / "model", byte_level())
    (tmp_path / "a.tsv").write_text("I ate an apple.\tIch\nHi\tHallo du\n")
    page = run(tmp_path / "model", tmp_path / "a.tsv", "--header", "en,de", "--beam", 1, *FEW)
    assert "2 sentences" in page
    assert "95 % interval" in page
    assert "BLEU: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in page
    assert "chrF2" in page
    assert "beam 1" in page
    without = run(tmp_path / "model", tmp_path / "a.tsv", "--header", "en,de", "--beam", 1, "--resamples", 0)
    assert "…" not in without


def test_errors_name_the_thing(tmp_path: Path):
    def failed(*args: object) -> str:
        result = CliRunner().invoke(cli.app, ["evaluate", *map(str, args)])
        assert result.exit_code == 2
        return result.stderr

    save(translator(), tmp_path / "model", byte_level())
    assert "does not exist" in failed(tmp_path / "nobody", tmp_path / "a.tsv")
    assert "a.tsv cannot be read" in failed(tmp_path / "model", tmp_path / "a.tsv")
    (tmp_path / "a.tsv").write_text("a\tb\tc\n1\t2\t3\n")
    assert "say which are source and target" in failed(tmp_path / "model", tmp_path / "a.tsv")
    save(translator(), tmp_path / "mute")
    (tmp_path / "b.tsv").write_text("source\ttarget\na\tb\n")
    assert "give its tokenizer" in failed(tmp_path / "mute", tmp_path / "b.tsv")


def test_minimal_pairs(tmp_path):
    model, tokenizer = tiny("gpt2", vocab_size=400, end_ids=(2,), dtype=torch.float32), byte_level()
    save(model, tmp_path / "model", tokenizer)
    pairs = [
        Pair(a, b, {"kind": f"kind{i}"})
        for i, (a, b) in enumerate(zip(SENTENCES * 3, SENTENCES[::-1] * 3, strict=True))
    ]
    for pair in pairs:
        row = {"sentence_good": pair.good, "sentence_bad": pair.bad}
        (tmp_path / f"{pair.of['kind']}.jsonl").write_text(json.dumps(row) + "\n")
    tables = [tmp_path / f"{pair.of['kind']}.jsonl" for pair in pairs]
    found = said(tmp_path / "model", *tables)
    expected = evaluate(model, tokenizer, pairs)
    assert (found["task"], found["n"], found["scores"]) == ("minimal_pairs", 18, expected.scores)
    assert found["groups"]["kind"]["kind3"]["accuracy"] == expected.groups["kind"]["kind3"].accuracy
    assert found["settings"]["behind"] == repr("\n\n")
    shown = run(tmp_path / "model", *tables, "--before", "So:", *FEW)
    assert "kind0.jsonl and 17 more: 18 pairs" in shown
    assert "by kind" in shown
    assert "and 6 more: --json" in shown
    assert "behind 'So:'" in shown
    named = {"field": "morphology", "linguistics_term": "binding", "UID": "x"}
    table = tmp_path / "one.jsonl"
    table.write_text(json.dumps({"right": "a man", "wrong": "man a", **named}) + "\n")
    shown = run(tmp_path / "model", table, "--good-column", "right", "--bad-column", "wrong", *FEW)
    assert "morphology" in shown
    assert "binding" in shown
    assert "by kind" not in shown
    assert "one.jsonl: 1 pair\n" in shown


def test_minimal_pairs_of_a_model_that_fills_blanks(tmp_path):
    tokenizer = train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=60)
    model = tiny("bert", task="pretrain", vocab_size=tokenizer.vocab_size, dtype=torch.float32)
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / "model" / "recipe.toml").write_text("")
    pairs = [Pair(a, b) for a, b in zip(SENTENCES, SENTENCES[::-1], strict=True)]
    rows = [{"sentence_good": pair.good, "sentence_bad": pair.bad} for pair in pairs]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = said(tmp_path / "model", tmp_path / "a.jsonl")
    assert found["scores"] == evaluate(model, tokenizer, pairs, as_trained=True).scores
    assert found["settings"]["by"] == "pseudo-log-likelihood"


def test_pronouns_and_last_words(tmp_path):
    model, tokenizer = tiny("gpt2", vocab_size=400, max_len=64, start_id=1, dtype=torch.float32), byte_level()
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / "wsc.txt").write_text("Ann saw Sue because [MASK] ran.\n[MASK]\nAnn,Sue\nSue\n\n" * 2)
    found = said(tmp_path / "model", tmp_path / "wsc.txt")
    expected = evaluate(model, tokenizer, [Schema("Ann saw Sue because ", " ran.", ("Ann", "Sue"), 1)] * 2)
    assert (found["task"], found["n"], found["scores"]) == ("winograd", 2, expected.scores)
    assert found["items"][0]["partial"] == pytest.approx(expected.items[0]["partial"])
    shown = run(tmp_path / "model", tmp_path / "wsc.txt", *FEW)
    assert "2 schemas" in shown
    assert "accuracy: partial: log p of what stands behind the candidate" in shown
    (tmp_path / "lambada.jsonl").write_text(json.dumps({"context": "I ate an", "continuation": "apple"}) + "\n")
    found = said(tmp_path / "model", tmp_path / "lambada.jsonl", "--no-start")
    expected = evaluate(model, tokenizer, [LastWord("I ate an", "apple")], start=False)
    assert (found["task"], found["items"][0]["word"]) == ("last_words", "apple")
    assert found["scores"] == pytest.approx(expected.scores)
    assert "1 passage" in run(tmp_path / "model", tmp_path / "lambada.jsonl", *FEW)


def test_words(tmp_path):
    (tmp_path / "glove.txt").write_text("man 1 0 0\nwoman 1 1 0\nking 1 0 1\nqueen 1 1 1\napple -1 0.2 -1\n")
    (tmp_path / "q.txt").write_text(": family\nMan Woman King Queen\nwoman man queen king\nman woman king nobody\n")
    found = said(tmp_path / "glove.txt", tmp_path / "q.txt")
    assert (found["task"], found["n"], found["scores"]) == ("analogies", 2, {"accuracy": 1.0})
    shown = run(tmp_path / "glove.txt", tmp_path / "q.txt", *FEW)
    assert "2 analogies" in shown
    assert "1 of 3 analogies have a word that is not known" in shown
    assert said(tmp_path / "glove.txt", tmp_path / "q.txt", "--vocab", 4)["signatures"]["accuracy"].startswith(
        "3CosAdd, the first 4 words"
    )
    (tmp_path / "s.tsv").write_text("man\twoman\t7\nman\tapple\t1\nking\tqueen\t8\n")
    assert said(tmp_path / "glove.txt", tmp_path / "s.tsv")["scores"]["spearman"] == pytest.approx(1)
    save(tiny("gpt2", vocab_size=400, dtype=torch.float32), tmp_path / "model", byte_level())
    found = said(tmp_path / "model", tmp_path / "s.tsv", "--at", "unembedding")
    assert (found["n"], found["settings"]["at"]) == (3, "unembedding")
    assert found["settings"]["words_of_several_tokens"] > 0
    (tmp_path / "a.txt").write_text("a book")
    ran = CliRunner().invoke(cli.app, ["evaluate", str(tmp_path / "glove.txt"), str(tmp_path / "a.txt")])
    assert (ran.exit_code, "for analogies and similarity" in ran.stderr) == (2, True)


# --- what is asked reaches what scores --------------------------------------------------------------------------------

TEXT, PAIRS_, WORDS_, LAST = "a.txt", "pairs.jsonl", "wsc.txt", "lambada.jsonl"
MADE = {
    "gpt2": lambda: (tiny("gpt2", vocab_size=400, max_len=64, start_id=1, dtype=torch.float32), byte_level()),
    "translator": lambda: (translator(), byte_level()),
    "bert": lambda: (tiny("bert", vocab_size=400, pad_id=0, dtype=torch.float32), byte_level()),
}
REACHED = [
    ("gpt2", TEXT, [], {}),
    ("gpt2", TEXT, ["--context", 9], {"context": 9}),
    ("gpt2", TEXT, ["--context", 9, "--stride", 4], {"context": 9, "stride": 4}),
    ("gpt2", TEXT, ["--no-start"], {"start": False}),
    ("gpt2", PAIRS_, [], {}),
    ("gpt2", PAIRS_, ["--before", "So:"], {"before": "So:"}),
    ("gpt2", PAIRS_, ["--no-start"], {"start": False}),
    ("gpt2", WORDS_, ["--before", "So:", "--no-start"], {"before": "So:", "start": False}),
    ("gpt2", LAST, [], {}),
    ("gpt2", LAST, ["--no-start"], {"start": False}),
    ("translator", "a.tsv", [], {}),
    ("translator", "a.tsv", ["--beam", 2], {"beam": 2}),
    ("translator", "a.tsv", ["--length-penalty", 0.5], {"length_penalty": 0.5}),
    ("translator", "a.tsv", ["--prune", 3], {"prune": 3.0}),
    ("translator", "a.tsv", ["--to", "de"], {"to": "de"}),
    ("bert", TEXT, [], {}),
    ("bert", TEXT, ["--context", 9], {"context": 9}),
]
USUAL = {
    "to": None, "beam": 4, "length_penalty": 1.0, "prune": None, "max_len": 256, "rows": None, "context": None,
    "stride": None, "start": True, "before": None, "as_trained": False, "mean": (0.5,), "std": (0.5,), "batch": None,
    "batch_tokens": None, "autocast": None, "level": 0.95,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "options", "wanted"), REACHED)
def test_what_is_asked_reaches_what_scores(tmp_path, monkeypatch, kind, data, options, wanted):
    model, tokenizer = MADE[kind]()
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / TEXT).write_text("the quick brown fox\n")
    (tmp_path / PAIRS_).write_text(json.dumps({"sentence_good": "a man", "sentence_bad": "man a"}) + "\n")
    (tmp_path / WORDS_).write_text("Ann saw Sue because [MASK] ran.\n[MASK]\nAnn,Sue\nSue\n\n")
    (tmp_path / LAST).write_text(json.dumps({"context": "I ate an", "continuation": "apple"}) + "\n")
    (tmp_path / "a.tsv").write_text("source\ttarget\nHi\tHallo\n")
    asked = []

    def heard(*given, progress, options):
        asked.append(options)
        raise InputError("heard")

    monkeypatch.setattr("cutaway.evaluation.evaluate", heard)
    for more, seed, resamples in (([], 0, 1000), (["--seed", 5, "--resamples", 7], 5, 7)):
        words = ["evaluate", tmp_path / "model", tmp_path / data, "--device", "cpu", *options, *more]
        assert "heard" in CliRunner().invoke(cli.app, list(map(str, words))).stderr
        assert asdict(asked.pop()) == USUAL | wanted | {"seed": seed, "resamples": resamples}


def test_which_examples_are_read_is_what_is_asked(tmp_path, monkeypatch):
    model, tokenizer = MADE["gpt2"]()
    save(model, tmp_path / "model", tokenizer)
    (tmp_path / TEXT).write_text("the quick brown fox\n")
    asked = []

    def heard(model, files, columns, **more):
        asked.append((files, columns, more))
        raise InputError("heard")

    monkeypatch.setattr("cutaway.evaluation.examples.read_examples", heard)
    names = ["source", "target", "text", "second", "label", "good", "bad"]
    words = ["evaluate", tmp_path / "model", tmp_path / TEXT, "--split", "line", "--limit", 3, "--to", "de"]
    words += [word for name in names for word in (f"--{name}-column", f"the {name}")]
    assert "heard" in CliRunner().invoke(cli.app, list(map(str, [*words, "--header", "a,b"]))).stderr
    files, columns, more = asked.pop()
    assert files == [tmp_path / TEXT]
    assert astuple(columns) == (*(f"the {name}" for name in names[:5]), ("a", "b"), "the good", "the bad")
    assert more == {"to": "de", "split": "line", "limit": 3}
