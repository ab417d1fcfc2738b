"""Where a model starts: the body of another comes along, bit for bit, its head does where it fits, and no more."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tiny_models import tiny
from helpers.toy_recipes import toy, values

from cutaway.checkpoints import load, save
from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer
from cutaway.training.datasets import prepare
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import recipe_from
from cutaway.training.starting_weights import refuse_long_rows, starting_model, starting_tokenizer
from cutaway.training.train import train

CPU = torch.device("cpu")


def from_folder(kind: str, folder: Path, start: Path, **changes: Any) -> Recipe:
    """The recipe of a kind, from a model instead of a size."""
    recipe = values(kind, folder)
    recipe["model"] = {"start": str(start), **changes}
    return recipe_from(recipe)


def head_and_body(model: Model) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    named = dict(model.named_parameters())
    head = {name: parameter for name, parameter in named.items() if name.startswith("head")}
    return head, {name: parameter for name, parameter in named.items() if name not in head}


@pytest.mark.parametrize(
    ("name", "task", "kind"),
    [
        ("bert", "masked_language_model", "classify"),
        ("bert", "pretrain", "tag"),
        ("bert", "pretrain", "regress"),
        ("gpt2", "language_model", "classify"),
        ("roformer", "masked_language_model", "classify"),
    ],
)
def test_another_task_takes_the_body_over_and_draws_a_head(name: str, task: str, kind: str, tmp_path: Path) -> None:
    old = tiny(name, dtype=torch.float32, task=task)
    save(old, tmp_path / "old")
    numbers = {"vocab_size": 999, "n_classes": 3, "labels": ["a", "b", "c"], "pad_id": 0}
    if kind == "regress":
        del numbers["n_classes"], numbers["labels"]
    recipe = from_folder(kind, tmp_path, tmp_path / "old", dropout=0.3)
    model, drawn = starting_model(recipe, numbers, CPU)
    head, body = head_and_body(model)
    given = dict(old.named_parameters())
    assert all(torch.equal(parameter, given[n]) for n, parameter in body.items())
    assert set(drawn) == {n for n in head if not (task == "pretrain" and n.startswith("head.pool."))}
    assert model.config.task == kind
    assert model.config.dropout == 0.3  # type: ignore[attr-defined]
    assert model.config.labels == (None if kind == "regress" else ("a", "b", "c"))
    assert model.config.vocab_size == old.config.vocab_size  # type: ignore[attr-defined]


def test_a_classifier_may_read_the_mean_instead(tmp_path: Path) -> None:
    save(tiny("bert", dtype=torch.float32, task="hidden"), tmp_path / "old")
    recipe = from_folder("classify", tmp_path, tmp_path / "old", pooling="mean")
    _, drawn = starting_model(recipe, {"n_classes": 3, "labels": ["a", "b", "c"]}, CPU)
    assert sorted(drawn) == ["head.classes.bias", "head.classes.weight"]


@pytest.mark.parametrize(
    ("task", "kind", "places"),
    [
        ("pretrain", "classify", ("head.pool.", "head.next_sentence.pool.")),
        ("pretrain", "masked", ("head.", "head.masked.")),
        ("hidden", "classify", ("head.pool.", "head.pool.")),
        ("hidden", "pretrain", ("head.next_sentence.pool.", "head.pool.")),
        ("masked_language_model", "pretrain", ("head.masked.", "head.")),
    ],
)
def test_what_a_head_has_learnt_comes_along_where_it_means_the_same(
    task: str, kind: str, places: tuple[str, str], tmp_path: Path
) -> None:
    """Of two classes, too: whether a sentence follows another is not what they will be about."""
    old = tiny("bert", dtype=torch.float32, task=task)
    save(old, tmp_path / "old")
    numbers = {"n_classes": 2, "labels": ["a", "b"]} if kind == "classify" else {}
    model, drawn = starting_model(from_folder(kind, tmp_path, tmp_path / "old"), numbers, CPU)
    head, given = head_and_body(model)[0], dict(old.named_parameters())
    now, before = places
    kept = {name: given[before + name.removeprefix(now)] for name in head if name.startswith(now)}
    assert kept
    assert all(torch.equal(head[name], parameter) for name, parameter in kept.items())
    assert set(drawn) == head.keys() - kept.keys()


def test_another_tokenizer_than_the_starting_models_is_refused(tmp_path: Path) -> None:
    """Its ids would be other words to the model; the same one from another place is the same."""
    train(toy("masked", tmp_path), tmp_path / "first")
    recipe = values("classify", tmp_path, tokenizer={"vocab_size": 70})
    recipe["model"] = {"start": str(tmp_path / "first")}
    said = rf"kind='wordpiece', of 70 tokens, .* the starting model, of 88 tokens, in {tmp_path / 'first'}: leave"
    with pytest.raises(ConfigError, match=said):
        train(recipe_from(recipe), tmp_path / "second")
    Tokenizer.load(tmp_path / "first").save(tmp_path / "elsewhere")
    recipe["tokenizer"] = {"file": str(tmp_path / "elsewhere" / "tokenizer.json")}
    assert train(recipe_from(recipe), tmp_path / "third").finished
    recipe["tokenizer"] = {"kind": "word"}
    with pytest.raises(ConfigError, match="kind='word'"):
        train(recipe_from(recipe), tmp_path / "fourth")


def test_the_same_task_takes_everything_over(tmp_path: Path) -> None:
    old = tiny("gpt2", dtype=torch.float32)
    save(old, tmp_path / "old")
    model, drawn = starting_model(from_folder("next_token", tmp_path, tmp_path / "old"), {"vocab_size": 99}, CPU)
    assert drawn == []
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), old.parameters(), strict=True))


@pytest.mark.parametrize(
    "changes",
    [{"d_model": 48}, {"n_layers": 3}, {"n_layers": 1}, {"n_heads": 2}, {"d_ff": 64}, {"vocab_size": 60},
     {"activation": "relu"}, {"max_len": 64}],
)  # fmt: skip
def test_a_change_of_the_body_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    """Fewer layers or other heads would fit the same matrices and be another model, silently."""
    save(tiny("bert", dtype=torch.float32), tmp_path / "old")
    recipe = from_folder("masked", tmp_path, tmp_path / "old", **changes)
    with pytest.raises(ConfigError, match=next(iter(changes)) if "max_len" not in changes else "positions"):
        starting_model(recipe, {}, CPU)


def test_a_key_that_the_family_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'd_modell' in a gpt2 config; known: .*d_model"):
        starting_model(toy("next_token", tmp_path, model={"d_modell": 32}), {"vocab_size": 9}, CPU)
    save(tiny("gpt2", dtype=torch.float32), tmp_path / "old")
    with pytest.raises(ConfigError, match=r"unknown key 'd_modell'"):
        starting_model(from_folder("next_token", tmp_path, tmp_path / "old", d_modell=32), {}, CPU)
    with pytest.raises(ConfigError, match=r"no size is called 'gpt-2'; known: .*gpt2"):
        starting_model(toy("next_token", tmp_path, model={"size": "gpt-2"}), {}, CPU)


def test_a_model_that_does_not_exist_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for model, said in (
        ({"size": "gpt2", "d_modell": 3}, r"unknown key 'd_modell' in \[model\] of size 'gpt2'; .* mean 'd_model'\?"),
        ({"size": "gpt-2"}, r"no size is called 'gpt-2'; known: .*gpt2"),
        (
            {"start": "old"},
            rf"\[model\] start='old': there is no such folder or file in {tmp_path}, the current folder",
        ),
        ({"start": "/none/old"}, r"\[model\] start='/none/old': there is no such folder or file$"),
    ):
        recipe = recipe_from({**values("next_token", tmp_path), "model": model})
        with pytest.raises(ConfigError, match=said):
            train(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["next_token", "lines", "masked", "pair", "translate"])
def test_rows_that_the_model_cannot_read_are_refused_before_the_first_step(kind: str, tmp_path: Path) -> None:
    recipe = toy(kind, tmp_path)
    dataset = prepare(recipe, None)
    read = []
    for source in (dataset.train, dataset.valid):
        assert source is not None
        batches = (dataset.objective.prepare(source(i), np.random.default_rng(0)) for i in range(source.steps))
        read += [batch[name].shape[1] for batch in batches for name in ("ids", "source") if name in batch]
    for max_len in (max(read), max(read) - 1):
        numbers = {**dataset.model_settings, "max_len": max_len}
        model, _ = starting_model(recipe, numbers, CPU)
        if max_len == max(read):
            refuse_long_rows(recipe, dataset, model)
        else:
            with pytest.raises(ConfigError, match=rf"rows of {max(read)} tokens are longer .*max_len={max_len}: set"):
                refuse_long_rows(recipe, dataset, model)


def test_new_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    first, again = (starting_model(toy("masked", tmp_path), {"vocab_size": 60}, CPU)[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    other, drawn = starting_model(toy("masked", tmp_path, seed=2), {"vocab_size": 60}, CPU)  # type: ignore[arg-type]
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert len(drawn) == len(list(other.parameters()))


def test_a_model_is_pre_trained_and_then_fine_tuned(tmp_path: Path) -> None:
    """Its tokenizer comes along, and what is frozen stays as it was."""
    train(toy("masked", tmp_path), tmp_path / "first")
    recipe = values("classify", tmp_path, train={"freeze": ["embedding.*"]})
    recipe["model"] = {"start": str(tmp_path / "first")}
    del recipe["tokenizer"]
    resolved = recipe_from(recipe)
    tokenizer = starting_tokenizer(resolved)
    assert tokenizer is not None
    assert prepare(resolved, tokenizer).tokenizer is tokenizer
    train(resolved, tmp_path / "second")
    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    assert second.config.task == "classify"
    assert second.config.labels == ("a", "b", "c")
    before, after = dict(first.named_parameters()), dict(second.named_parameters())
    same = {name for name in before.keys() & after.keys() if torch.equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith("embedding.")}
    del recipe["model"]["start"]
    recipe["model"]["size"] = "bert-tiny"
    with pytest.raises(ConfigError, match="needs a `file`, or a `kind` to train"):
        train(recipe_from(recipe), tmp_path / "third")


@pytest.mark.parametrize("which", ["train", "valid"])
def test_rows_of_either_part_that_the_model_cannot_read_are_refused(which: str, tmp_path: Path) -> None:
    """Validation comes late: hours of training would end there."""
    recipe = toy("classify", tmp_path)
    rows = {name: [("a cat sat", "ab"[i % 2]) for i in range(8)] for name in ("train", "valid")}
    rows[which] += [("a cat sat on the mat and the dog ran", "a")]
    for name, some in rows.items():
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in some))
    files = {"train": ["train.tsv"], "valid": ["valid.tsv"], "valid_share": 0.0}
    recipe = toy("classify", tmp_path, data={**files, "root": str(tmp_path), "seq_len": 24})
    dataset = prepare(recipe, None)
    widths = {name: max(max(b.widths) for b in getattr(dataset, name).buckets.buckets) for name in rows}
    assert widths[which] == max(widths.values()) > min(widths.values())
    for max_len, refused in ((max(widths.values()), False), (max(widths.values()) - 1, True)):
        model, _ = starting_model(recipe, {**dataset.model_settings, "max_len": max_len}, CPU)
        with pytest.raises(ConfigError, match="are longer than the model's max_len") if refused else nullcontext():
            refuse_long_rows(recipe, dataset, model)


@pytest.mark.parametrize(
    "changes",
    [{"pad_id": 3}, {"start_id": 4}, {"end_ids": [5, 6]}, {"dropout": 0.4}, {"attention_dropout": 0.4},
     {"pooling": "mean"}],
)  # fmt: skip
def test_what_is_no_part_of_the_body_may_change(changes: dict[str, Any], tmp_path: Path) -> None:
    save(tiny("bert", dtype=torch.float32), tmp_path / "old")
    model, _ = starting_model(from_folder("masked", tmp_path, tmp_path / "old", **changes), {}, CPU)
    (name, value), *_ = changes.items()
    assert model.config.to_dict()[name] == value
