"""Files without a recipe: what they look like, and what is said of their columns, chooses one."""

from pathlib import Path
from typing import Any

import pytest
from helpers.tiny_models import tiny
from helpers.toy_recipes import write_files

from cutaway.checkpoints import load, save
from cutaway.errors import ConfigError, InputError
from cutaway.training.datasets import prepare
from cutaway.training.presets import recipe_for
from cutaway.training.train import train

SMALL = ["train.steps=1", "train.tokens=512", "tokenizer.vocab_size=300"]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def table(folder: Path, name: str, *header: str) -> Path:
    """Thirty rows: a sentence, another one, and a or b."""
    rows = [
        *(["\t".join(header)] if header else []),
        *(f"one cat {i}\teine Katze {i}\t{'ab'[i % 2]}" for i in range(30)),
    ]
    return write(folder / name, "\n".join(rows) + "\n")


# --- which recipe -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "changes", "kind", "columns"),
    [
        (["source", "target", "n"], [], "translate", {"source": "source", "target": "target"}),
        (["en", "de", "n"], ["data.source=en", "data.target=de"], "translate", {"source": "en", "target": "de"}),
        (["en", "target", "n"], ["data.source=en"], "translate", {"source": "en", "target": "target"}),
        (["en", "de", "n"], ['data.directions=["en-de", "de-en"]'], "translate", {}),
        (["text", "more", "label"], [], "classify", {"text": "text", "second": None}),
        (["sentence1", "sentence2", "label"], [], "classify", {"text": "sentence1", "second": "sentence2"}),
        (["review", "more", "stars"], ["data.text=review", "data.label=stars"], "classify", {"text": "review"}),
        (["text", "more", "stars"], ["data.label=stars"], "classify", {"text": "text", "label": "stars"}),
        (["a", "b", "label"], ["data.text=a", "data.second=b"], "classify", {"text": "a", "second": "b"}),
        (["source", "target", "label"], ["data.text=target"], "classify", {"text": "target", "label": "label"}),
        ([], ['data.header=["source", "target", "n"]'], "translate", {}),
        ([], ['data.header=["source", "target"]', "data.further_fields=true"], "translate", {}),
        ([], ['data.header=["text", "second", "label"]'], "classify", {"second": "second"}),
    ],
)
def test_the_columns_that_are_named_count(
    header: list[str], changes: list[str], kind: str, columns: dict[str, Any], tmp_path: Path
) -> None:
    recipe = recipe_for([table(tmp_path, "a.tsv", *header)], [*SMALL, *changes])
    assert recipe.objective.kind == kind
    assert {name: getattr(recipe.data, name) for name in columns} == columns
    assert prepare(recipe, None).train.n_examples > 20  # and they are read


def test_the_files_choose_the_recipe(tmp_path: Path) -> None:
    write_files(tmp_path)
    english, german, text = tmp_path / "pairs.en", tmp_path / "pairs.de", tmp_path / "text.txt"
    other = write(tmp_path / "other.txt", english.read_text())
    for paths, changes, kind, form in (
        ([text], [], "next_token", "auto"),
        ([english, german], [], "translate", "parallel"),
        ([english, other], ['data.header=["source", "target"]'], "translate", "parallel"),
        ([tmp_path / "pictures.npz"], [], "images", "auto"),
        ([table(tmp_path, "table.dat", "text", "second", "label")], ["data.table=tsv"], "classify", "table"),
    ):
        recipe = recipe_for(paths, changes)
        assert (recipe.objective.kind, recipe.data.format) == (kind, form)


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (["train.en", "train.de"], ("en", "de")),
        (["train.en.gz", "train.de.gz"], ("en", "de")),
        (["en.txt", "de.txt"], ("en", "de")),
        (["news-EN.txt", "news-DE.txt"], ("EN", "DE")),
        (["en/news.txt", "de/news.txt"], ("en", "de")),
        (["train.src", "train.tgt"], ("src", "tgt")),
        (["a.mine", "a.theirs"], ("mine", "theirs")),
        (["a.en", "a.de", "b.en", "b.de"], ("en", "de")),
        (["train.en-US", "train.de"], ("en-US", "de")),
        (["pt_BR.txt", "en.txt"], ("pt_BR", "en")),
        (["a.zh-Hans.txt.gz", "a.en.txt"], ("zh-Hans", "en")),
    ],
)
def test_names_that_differ_in_their_language_are_pairs_of_as_many_lines(
    names: list[str], header: tuple[str, str], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        write(path, "one\ntwo\nthree\n")
    data = recipe_for(paths).data
    assert (data.format, data.header) == ("parallel", header)
    write(paths[1], "one\n")
    each = f"{paths[0]} \\(3 lines\\), {paths[1]} \\(1 lines\\).*: by their names these are parallel texts"
    with pytest.raises(ConfigError, match=each):
        recipe_for(paths)
    recipe = recipe_for(paths, ["data.format=text"])
    assert (recipe.objective.kind, recipe.data.format) == ("next_token", "text")


@pytest.mark.parametrize(
    "names",
    [
        ["a.en", "a.de", "a.fr"],
        ["a.en-US", "a.de", "a.fr-CA"],
        ["a.en", "b.en", "a.de", "b.de"],
        ["en.txt", "de.txt", "other.txt"],
    ],
)
def test_files_that_only_half_look_like_pairs_are_refused(names: list[str], tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "one\ntwo\n") for name in names]
    with pytest.raises(ConfigError, match=r"a?.*\(2 lines\).*these are parallel texts, .*data.format=text"):
        recipe_for(paths)


@pytest.mark.parametrize(
    "names",
    [
        ["one.txt", "two.txt"],
        ["vol.1", "vol.2", "vol.3"],
        ["a-en.txt", "b-de.txt"],
        ["en.txt"],
        ["it", "xx"],
        ["part-AB.txt", "part-CD.txt"],
    ],
)
def test_texts_by_other_names_are_running_text(names: list[str], tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "one\n" * n) for n, name in enumerate(names, 1)]
    assert recipe_for(paths).objective.kind == "next_token"


@pytest.mark.parametrize(
    ("header", "changes", "said"),
    [
        (["en", "de", "n"], [], r"a.tsv has the columns en, de, n: columns named source .* --set data.text=…"),
        (["en", "de", "n"], ["data.source=en", "data.target=fr"], r"a.tsv has the columns en, de, n:"),
        (["text", "de", "label"], ["data.source=text"], r"a.tsv has the columns text, de, label:"),
        (["text", "de", "label"], ["data.text=txt"], r"a.tsv has the columns text, de, label:"),
        (["en", "de", "n"], ["data.tetx=en"], r"unknown key 'tetx' in \[data\]; .*did you mean 'text'"),
        (["en", "de", "n"], ["data.skip_lines=x"], r"data.skip_lines='x' is not int"),
        (["en", "de", "n"], ["data=3"], r"data is a table: write it as \[data\]"),
        (["text", "de", "label"], ["model=3"], r"model is a table: write it as \[model\]"),
    ],
)
def test_columns_that_nobody_finds_are_refused(
    header: list[str], changes: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises((InputError, ConfigError), match=said):
        recipe_for([table(tmp_path, "a.tsv", *header)], changes)


# --- how long ---------------------------------------------------------------------------------------------------------


def test_little_data_takes_fewer_steps_with_warm_up_and_evaluations_in_proportion(tmp_path: Path) -> None:
    short, long = (
        write(tmp_path / "short.txt", "one two\n" * 10_000),
        write(tmp_path / "long.txt", "one two\n" * 200_000),
    )
    few, many = recipe_for([short]), recipe_for([long])
    assert (few.train.steps, few.schedule.warmup, few.evaluate.every) == (800, 80, 100)  # 80 kB: 40 epochs of 20 steps
    assert (many.train.steps, many.schedule.warmup, many.evaluate.every) == (2000, 100, 250)  # as the preset says
    least = recipe_for([table(tmp_path, "a.tsv", "text", "more", "label")])
    assert (least.train.steps, least.schedule.warmup, least.evaluate.every) == (200, 20, 25)
    for paths in ([tmp_path / "pairs.en", tmp_path / "pairs.de"], [tmp_path / "pictures.npz"]):
        write_files(tmp_path)
        assert recipe_for(paths).train.steps == 200


def test_steps_grow_with_the_data_up_to_the_presets(tmp_path: Path) -> None:
    rows = ["text\tlabel", *(f"one cat\t{'ab'[i % 2]}" for i in range(1600))]
    path = write(tmp_path / "a.tsv", "\n".join(rows) + "\n")
    assert recipe_for([path]).train.steps == 1000  # 20 epochs of 50 steps
    path.write_text("\n".join(rows * 2) + "\n")
    assert recipe_for([path]).train.steps == 1500
    assert recipe_for([path], ["train.rows=128"]).train.steps == 520


def test_what_is_set_is_not_scaled(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one two\n" * 100)
    recipe = recipe_for([path], ["train.steps=50", "evaluate.every=40"])
    assert (recipe.train.steps, recipe.schedule.warmup, recipe.evaluate.every) == (50, 5, 40)
    assert recipe_for([path], ["train.steps=50", "schedule.warmup=7"]).schedule.warmup == 7


# --- from a trained model ---------------------------------------------------------------------------------------------


def test_a_start_replaces_the_size_and_the_tokenizer(tmp_path: Path) -> None:
    """Whatever the preset says of its own model: its size, its numbers, its tokenizer."""
    write_files(tmp_path)
    path = table(tmp_path, "a.tsv", "text", "second", "label")
    for paths in ([path], [tmp_path / "text.txt"], [tmp_path / "pictures.npz"]):
        recipe = recipe_for(paths, ["model.start=old"])
        assert (recipe.model.size, recipe.model.start, recipe.model.changes) == (None, "old", {})
        assert recipe.tokenizer.kind is None
        assert (recipe.optimizer.kind, recipe.optimizer.rate) == ("adamw", 1e-4)  # a new model's rate would undo it
        assert recipe_for(paths).optimizer.rate > 2 * recipe.optimizer.rate
        assert recipe_for(paths, ["model.start=old", "optimizer.rate=0.5"]).optimizer.rate == 0.5
    recipe = recipe_for([path], ["model.dropout=0.3", "model.start=old"])
    assert recipe.model.changes == {"dropout": 0.3}
    with pytest.raises(ConfigError, match=r"\[model\] needs a `size` .* or a `start`"):
        recipe_for([path], ["model.start=old", "model.size=bert-tiny"])


def test_a_classifier_starts_from_a_trained_model(tmp_path: Path) -> None:
    path = table(tmp_path, "a.tsv", "text", "more", "label")
    tokenizer = prepare(recipe_for([path], SMALL), None).tokenizer
    assert tokenizer is not None
    save(tiny("bert", vocab_size=tokenizer.vocab_size), tmp_path / "old", tokenizer)
    changes = [f"model.start={tmp_path / 'old'}", "train.steps=1", "data.seq_len=16"]
    train(recipe_for([path], changes), tmp_path / "new")
    old, new = load(tmp_path / "old").config, load(tmp_path / "new").config
    assert (new.task, new.labels) == ("classify", ("a", "b"))
    assert new.d_model == old.d_model  # type: ignore[attr-defined]
