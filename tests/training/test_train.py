"""Whole runs: the same twice to the last bit, what is kept, when it stops, and what lies in the folder."""

import re
import shutil
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.toy_recipes import KINDS, toy, values, write_files
from helpers.training_runs import Events, run, same_weights, told

from cutaway.bundled.info import read_front_matter
from cutaway.checkpoints import load, load_tokenizer
from cutaway.checkpoints.tensors import open_tensors
from cutaway.errors import ConfigError
from cutaway.model.model import Model
from cutaway.training.model_card import model_card
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import recipe_from, to_toml
from cutaway.training.start_run import uses_cuda_graphs
from cutaway.training.train import train
from cutaway.training.trainer import Trainer


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_twice_is_the_same_to_the_last_bit(kind: str, tmp_path: Path) -> None:
    """With dropout, accumulation, an average of the weights, and any number of workers."""
    changes: dict[str, Any] = {"model": {"dropout": 0.1}, "train": {"ema": 0.5, "accumulate": 2, "rows": 8}}
    if kind == "images":
        changes["objective"] = {"shift": 1, "mirror": True, "cutmix": 0.5, "erase": 0.5}
    first = run(toy(kind, tmp_path, **changes), tmp_path / "first")
    changes["train"]["workers"] = 3
    again = run(toy(kind, tmp_path, **changes), tmp_path / "again")
    assert told(first[1], "step") == told(again[1], "step")
    assert told(first[1], "evaluate") == told(again[1], "evaluate")
    assert first[0].scores == again[0].scores
    assert same_weights(load(tmp_path / "first"), load(tmp_path / "again"))
    assert [event["step"] for event in told(first[1], "step")] == [1, 2, 3, 4]


def test_a_run_with_dropped_merges_goes_on_to_the_same_bits_though_its_cuts_are_drawn_again(tmp_path: Path) -> None:
    tokenizer = {"kind": "bpe", "vocab_size": 300, "dropout": 0.3, "cuts": 3}
    recipe = toy("translate", tmp_path, tokenizer=tokenizer, data={"seq_len": 64}, model={"dropout": 0.1})
    whole = run(recipe, tmp_path / "whole")
    shutil.rmtree(tmp_path / "cache")

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        train(recipe, tmp_path / "half", listeners=[stop])
    shutil.rmtree(tmp_path / "cache")
    events: Events = []
    train(recipe, tmp_path / "half", resume=True, listeners=[events.append])
    assert told(events, "step") == told(whole[1], "step")[2:]
    assert same_weights(load(tmp_path / "whole"), load(tmp_path / "half"))
    for changes, said in (({"dropout": 0.2}, "tokenizer.dropout: 0.3 → 0.2"), ({"cuts": 4}, "tokenizer.cuts: 3 → 4")):
        other = toy("translate", tmp_path, tokenizer=tokenizer | changes, data={"seq_len": 64}, model={"dropout": 0.1})
        with pytest.raises(ConfigError, match=f"{said}; the data"):
            train(other, tmp_path / "half", resume=True)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    first, other = (run(toy("next_token", tmp_path, seed=seed), tmp_path / str(seed)) for seed in (1, 2))  # type: ignore[arg-type]
    assert told(first[1], "step") != told(other[1], "step")


def test_a_model_folder_is_whole(tmp_path: Path) -> None:
    recipe = toy("translate", tmp_path, name="tiny", about="A toy.", licence="none")  # type: ignore[arg-type]
    outcome, events = run(recipe, tmp_path / "out")
    out = tmp_path / "out"
    model, tokenizer = load(out), load_tokenizer(out)
    assert not model.training
    assert model.config.vocab_size == tokenizer.vocab_size  # type: ignore[attr-defined]
    assert (model.config.start_id, model.config.end_ids) == (tokenizer.bos_id, (tokenizer.eos_id,))
    assert recipe_from(tomllib.loads((out / "recipe.toml").read_text())) == recipe
    card = (out / "README.md").read_text()
    assert card.startswith('---\nabout: "A toy."\nlicense: "none"\nscore: "loss ')
    assert "\n---\n\n# tiny\n\nA toy.\n" in card
    assert f"| loss | {outcome.scores['loss']:.4f} |" in card
    assert "| licence of the data | none |" in card
    assert f"| parameters | {model.n_parameters():,} |" in card
    assert (outcome.step, outcome.finished, outcome.exit_code) == (4, True, 0)
    assert [e["event"] for e in events if e["event"] in ("start", "end")] == ["start", "end"]


def test_a_card_names_the_start_and_what_was_trained(tmp_path: Path) -> None:
    run(toy("lines", tmp_path), tmp_path / "old")
    assert "| start | new weights |" in (tmp_path / "old" / "README.md").read_text()
    recipe = values("lines", tmp_path, train={"lora_rank": 2}) | {"model": {"start": str(tmp_path / "old")}}
    del recipe["tokenizer"]
    run(recipe_from(recipe), tmp_path / "new")
    said = f"| start | the weights of `{tmp_path / 'old'}`, trained by LoRA of rank 2 and merged |"
    assert said in (tmp_path / "new" / "README.md").read_text()


def test_a_warm_up_that_never_ends_is_told(tmp_path: Path) -> None:
    for warmup, notes in ((4, 0), (5, 1)):
        _, events = run(toy("lines", tmp_path, schedule={"warmup": warmup}), tmp_path / str(warmup))
        told_of = [
            event for event in events if event["event"] == "note" and "schedule.warmup=5 is more than" in event["text"]
        ]
        assert len(told_of) == notes


# --- which weights are kept -------------------------------------------------------------------------------------------


def weights_at(out: Path, step: int, name: str = "weights") -> Any:
    return open_tensors(out / "run" / "checkpoints" / f"step-{step:08d}" / f"{name}.safetensors")


def holds(model: Model, source: Any) -> bool:
    return all(torch.equal(parameter, source.read(name)) for name, parameter in model.named_parameters())


def worse_and_worse(tmp_path: Path, **more: Any) -> Recipe:
    """A rate so high that each evaluation after the first is worse."""
    tables: dict[str, Any] = {
        "train": {"steps": 6, **more.pop("train", {})},
        "optimizer": {"rate": 1.0, "clip": 0.0},
        "schedule": {"kind": "constant"},
        "evaluate": {"every": 1, **more.pop("evaluate", {})},
        "checkpoint": {"every": 1, "keep": 2},
    }
    return toy("lines", tmp_path, **tables)


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    outcome, events = run(worse_and_worse(tmp_path), tmp_path / "out")
    losses = [event["loss"] for event in told(events, "evaluate")]
    best = losses.index(min(losses)) + 1
    assert best < 5  # else its checkpoint would be there anyway
    assert [event["best"] for event in told(events, "evaluate")][best - 1 :] == [True] + [False] * (6 - best)
    assert outcome.scores["loss"] == min(losses)
    assert holds(load(tmp_path / "out"), weights_at(tmp_path / "out", best))
    assert f"after step {best}, the best by loss" in (tmp_path / "out" / "README.md").read_text()


def test_the_last_weights_are_kept_where_the_recipe_says_so(tmp_path: Path) -> None:
    outcome, events = run(worse_and_worse(tmp_path, evaluate={"keep_best": False}), tmp_path / "out")
    assert outcome.scores["loss"] == told(events, "evaluate")[-1]["loss"]
    assert holds(load(tmp_path / "out"), weights_at(tmp_path / "out", 6))


def test_a_moving_average_is_measured_and_kept(tmp_path: Path) -> None:
    run(toy("lines", tmp_path, train={"ema": 0.9}, evaluate={"keep_best": False}), tmp_path / "out")
    model = load(tmp_path / "out")
    assert holds(model, weights_at(tmp_path / "out", 4, "average"))
    assert not holds(model, weights_at(tmp_path / "out", 4))


def test_the_mean_of_the_last_checkpoints_is_kept(tmp_path: Path) -> None:
    recipe = toy("lines", tmp_path, train={"average": 3, "steps": 5}, checkpoint={"every": 1, "keep": 1})
    run(recipe, tmp_path / "out")
    for name, parameter in load(tmp_path / "out").named_parameters():
        mean = torch.stack([weights_at(tmp_path / "out", step).read(name) for step in (3, 4, 5)]).double().mean(0)
        assert torch.equal(parameter, mean.float())


def test_detours_are_merged_into_an_ordinary_model(tmp_path: Path) -> None:
    run(toy("lines", tmp_path, train={"lora_rank": 2, "steps": 2}), tmp_path / "out")
    names = [name for name, _ in load(tmp_path / "out").named_parameters()]
    assert not any("inward" in name or "frozen" in name for name in names)
    assert any(name.endswith("attention.output.weight") for name in names)


def test_what_computes_inner_values_again_is_not_recorded_and_says_so(tmp_path: Path) -> None:
    for again in (False, True):
        notes: list[str] = []
        recipe = toy("lines", tmp_path, train={"checkpointing": again})
        assert uses_cuda_graphs(recipe, torch.device("cuda"), notes.append) is not again
        assert [note[:20] for note in notes] == ["train.checkpointing:"] * again


# --- when it stops ----------------------------------------------------------------------------------------------------


def test_a_run_that_gets_no_better_stops_early(tmp_path: Path) -> None:
    """At a rate of 0 nothing changes: the first evaluation is the best, and two more are waited for."""
    still = {"optimizer": {"rate": 0.0}, "evaluate": {"every": 2, "patience": 2}, "train": {"steps": 50}}
    outcome, events = run(toy("lines", tmp_path, **still), tmp_path / "out")
    assert (outcome.step, outcome.finished) == (6, True)
    assert told(events, "end")[0]["reason"] == "stopped early"


@pytest.mark.parametrize(("metric", "best"), [("loss", 3), ("loss_label", 3), ("accuracy", 2)])
def test_a_loss_is_best_when_low_and_a_score_when_high(
    metric: str, best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured are 0.5, 0.7, 0.2 and NaN, whatever that is."""
    measured = iter([0.5, 0.7, 0.2, float("nan")])
    found = lambda *args, **more: {"loss": 1.0, metric: next(measured)}  # noqa: E731
    monkeypatch.setattr("cutaway.training.trainer.validate", found)
    asked = {"evaluate": {"every": 1, "metric": metric}, "objective": {"auxiliary": 0.5}}
    outcome, events = run(toy("classify", tmp_path, **asked), tmp_path / "out")
    assert [event["step"] for event in told(events, "evaluate") if event["best"]] == [1, best]
    assert outcome.scores[metric] == {2: 0.7, 3: 0.2}[best]


def test_an_unknown_metric_is_refused_before_the_first_step(tmp_path: Path) -> None:
    events: Events = []
    with pytest.raises(ConfigError, match=r"evaluate.metric='bleu' is not measured .*; measured are loss, accuracy"):
        train(toy("classify", tmp_path, evaluate={"metric": "bleu"}), tmp_path / "out", listeners=[events.append])
    assert told(events, "step") == told(events, "start") == []
    with pytest.raises(ConfigError, match=r"schedule.kind='cosin'"):
        run(toy("classify", tmp_path, schedule={"kind": "cosin"}), tmp_path / "two")


def test_without_validation_the_last_weights_are_the_model(tmp_path: Path) -> None:
    outcome, events = run(toy("lines", tmp_path, data={"valid_share": 0.0}), tmp_path / "out")
    assert outcome.scores == {}
    assert told(events, "evaluate") == []
    assert "none: the recipe names no validation data" in (tmp_path / "out" / "README.md").read_text()
    assert holds(load(tmp_path / "out"), weights_at(tmp_path / "out", 4))


# --- the Python call --------------------------------------------------------------------------------------------------


def test_files_are_trained_on_and_keywords_change_the_recipe(tmp_path: Path) -> None:
    write_files(tmp_path)
    small = {"model": {"d_model": 16, "n_heads": 2, "n_layers": 1}, "tokens": 256, "seq_len": 16, "threads": 1}
    for what in (str(tmp_path / "text.txt"), [tmp_path / "text.txt"]):
        outcome = train(what, tmp_path / f"out{len(str(what))}", steps=2, seed=3, **small)
        assert outcome.step == 2
    saved = tomllib.loads((tmp_path / f"out{len(str(what))}" / "recipe.toml").read_text())
    assert (saved["seed"], saved["model"]["d_model"], saved["data"]["seq_len"]) == (3, 16, 16)


def test_a_recipe_with_keywords_is_the_recipe_with_changes(tmp_path: Path) -> None:
    recipe = toy("next_token", tmp_path)
    first = run(toy("next_token", tmp_path, train={"steps": 2}, model={"d_ff": 16}), tmp_path / "first")
    events: Events = []
    outcome = train(recipe, tmp_path / "second", steps=2, model={"d_ff": 16}, listeners=[events.append])
    assert outcome.scores == first[0].scores
    assert told(events, "step") == told(first[1], "step")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    assert (
        train(tmp_path / "recipe.toml", str(tmp_path / "third"), steps=2, model={"d_ff": 16}).scores == outcome.scores
    )
    assert train(None, tmp_path / "third", resume=True).scores == outcome.scores


def test_keywords_that_no_table_or_several_tables_have_are_refused(tmp_path: Path) -> None:
    recipe = toy("next_token", tmp_path)
    for changes, said in (
        ({"step": 2}, r"unknown key 'step' in recipes; .*did you mean 'steps'"),
        ({"every": 2}, r"every is a key of several tables: say evaluate={'every': …} or checkpoint={'every': …}"),
        ({"steps": None}, r"steps=None"),
        ({"train": {"stepz": 2}}, r"unknown key 'stepz' in \[train\]"),
    ):
        with pytest.raises(ConfigError, match=said):
            train(recipe, tmp_path / "out", **changes)
    with pytest.raises(ConfigError, match=r"name a recipe \(.toml\) or files to train on"):
        train([], tmp_path / "out")


@pytest.mark.parametrize(("metric", "right"), [("loss", [2, 3]), ("accuracy", [2, 4])])
def test_what_is_no_number_is_never_the_best(
    metric: str, right: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it comes first: nothing would ever be better than that."""
    measured = iter([float("nan"), 0.5, 0.2, 0.7])
    monkeypatch.setattr(
        "cutaway.training.trainer.validate", lambda *args, **more: {"loss": 1.0, metric: next(measured)}
    )
    outcome, events = run(toy("classify", tmp_path, evaluate={"every": 1, "metric": metric}), tmp_path / "out")
    assert [event["step"] for event in told(events, "evaluate") if event["best"]] == right
    assert outcome.scores[metric] == {"loss": 0.2, "accuracy": 0.7}[metric]


@pytest.mark.parametrize(
    ("metric", "best"), [("loss", 3), ("perplexity", 3), ("bits_per_byte", 3), ("loss_label", 3), ("f1", 2), ("mcc", 2)]
)
def test_which_way_a_metric_is_better(metric: str, best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(toy("lines", tmp_path, evaluate={"metric": metric}), tmp_path / "out", [])
    measured = iter([0.5, 0.7, 0.2])
    monkeypatch.setattr(trainer, "_validate", lambda: {"loss": 1.0, metric: next(measured)})
    monkeypatch.setattr("cutaway.training.trainer.look_back", lambda *args, **more: None)
    monkeypatch.setattr("cutaway.training.trainer.weights_of", lambda *args: nullcontext())
    monkeypatch.setattr("cutaway.training.trainer.samples", lambda *args: [])
    told_of: list[dict[str, Any]] = []
    trainer.run = SimpleNamespace(best=None, best_step=None, waited=0, step=0, model=None, average=None, tokens=0)
    trainer.dataset = SimpleNamespace(valid=object())
    trainer.log, trainer.lap = told_of.append, SimpleNamespace(start=lambda tokens: None)
    monkeypatch.setattr(trainer, "_seconds", lambda: 0.0)
    for step in (1, 2, 3):
        trainer.run.step = step
        trainer._validate_and_log()
    assert [one["step"] for one in told_of if one["best"]] == [1, best]


FACTS: dict[str, Any] = {"scores": {"loss": 1.23456, "perplexity": 3.4}, "unit": "tokens", "step": 1200,
                         "tokens": 34_567, "seconds": 1234.6, "machine": "a machine", "flops": 1.5e12, "skipped": 3,
                         "weights": "These are the weights."}  # fmt: skip


def test_a_card_has_every_fact_in_its_row(tmp_path: Path) -> None:
    recipe = toy("lines", tmp_path, name="mine", about="One.\nTwo.", licence="CC0-1.0")  # type: ignore[arg-type]
    model = tiny("gpt2")
    card = model_card(recipe, model, FACTS)
    assert read_front_matter(card) == {
        "about": "One. Two.", "license": "CC0-1.0", "score": "loss 1.2346 on the validation examples",
    }  # fmt: skip
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", card, re.MULTILINE))
    date = rows.pop("date")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert rows == {
        "family, task": "gpt2, language_model", "parameters": f"{model.n_parameters():,}", "objective": "next_token",
        "start": "new weights", "training data": "`text.txt`", "licence of the data": "CC0-1.0",
        "steps, tokens seen": "1,200, 34,567", "training time": "1,235 s on a machine", "operations": "1.50e+12",
        "steps skipped (no finite loss)": "3", "score": "value", "loss": "1.2346", "perplexity": "3.4000",
    }  # fmt: skip
    assert "# mine\n\nOne.\nTwo.\n" in card
    assert "\nThese are the weights.\n" in card


def test_a_card_without_scores_licence_or_words_says_so(tmp_path: Path) -> None:
    card = model_card(toy("lines", tmp_path), tiny("gpt2"), FACTS | {"scores": {}})
    assert read_front_matter(card) == {"about": "A gpt2 model trained with Cutaway."}
    assert "| none: the recipe names no validation data | |" in card
    assert "| licence of the data | not stated in the recipe |" in card
    other = toy("lines", tmp_path, evaluate={"metric": "perplexity"})
    assert (
        read_front_matter(model_card(other, tiny("gpt2"), FACTS))["score"]
        == "perplexity 3.4000 on the validation examples"
    )


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_so_many_batches_are_measured_as_the_recipe_says(
    batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "cutaway.training.trainer.validate", lambda *args, **more: asked.append(more["batches"]) or {"loss": 1.0}
    )
    run(toy("lines", tmp_path, evaluate={"batches": batches, "every": 2}), tmp_path / "out")
    assert asked == [batches, batches]
