"""Recurrent models through the same doors: recipes, checkpoints, folders, commands; and plain words at those that are
a Transformer's."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import RECURRENT, close, inputs, some_ids, tiny
from helpers.toy_recipes import values
from helpers.training_runs import run, same_weights, told
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import export, load, load_tokenizer, save
from cutaway.decoding.generate import generate
from cutaway.decoding.translate_sentences import translate_all
from cutaway.errors import CheckpointError, ConfigError, InputError
from cutaway.inside.attribution.rollout import attention_rollout
from cutaway.inside.circuits.circuit_task import circuit_nodes
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.residual.logit_lens import logit_lens
from cutaway.inside.residual.stream import decompose_residual
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import recipe_from, to_toml
from cutaway.training.train import train

KINDS = {"lines": "lstm", "translate": "lstm-translator", "classify": "lstm"}
PAIRS = [
    ("a dog runs", "ein hund rennt"),
    ("the cat sleeps", "die katze schläft"),
    ("two men eat", "zwei männer essen"),
]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def said(*args: object) -> str:
    ran = CliRunner().invoke(cli.app, [*map(str, args)])
    assert ran.exit_code == 0, (ran.output, ran.exception)
    return ran.stdout


def failed(*args: object) -> str:
    ran = CliRunner().invoke(cli.app, [*map(str, args)])
    assert ran.exit_code == 2, (ran.output, ran.exception)
    return ran.stderr


def recipe_of(kind: str, folder: Path, **tables: Any) -> Recipe:
    """A toy recipe with a recurrent model in place of its own."""
    recipe = values(kind, folder, **tables)
    recipe["model"] = {"size": KINDS[kind], "d_model": 16, "dropout": 0.1, **tables.get("model", {})}
    return recipe_from(recipe)


def read_of(model: Any, name: str) -> tuple[torch.Tensor, ...]:
    return (some_ids(2, 7, seed=1), some_ids(2, 6, seed=2)) if name == "lstm-translator" else inputs(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(kind: str, tmp_path: Path) -> None:
    recipe = recipe_of(
        kind, tmp_path, tokenizer={"kind": "word"}, train={"tokens": 64, "ema": 0.5}, evaluate={"every": 4}
    )
    whole = run(recipe, tmp_path / "whole")

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        train(recipe, tmp_path / "half", listeners=[stop])
    events: list[dict[str, Any]] = []
    train(recipe, tmp_path / "half", resume=True, listeners=[events.append])
    assert told(events, "step") == told(whole[1], "step")[2:]
    assert same_weights(load(tmp_path / "whole"), load(tmp_path / "half"))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_folder_holds_every_bit(name: str, tmp_path: Path) -> None:
    model = tiny(name, dtype=torch.float32)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.config == model.config
    assert same_weights(model, again)
    assert torch.equal(again(*read_of(again, name)), model(*read_of(model, name)))
    save(model, tmp_path / "packed", store="int8")
    packed = load(tmp_path / "packed")
    assert (tmp_path / "packed/model.safetensors").stat().st_size < 0.6 * (
        tmp_path / "model/model.safetensors"
    ).stat().st_size
    assert (packed(*read_of(packed, name)) - model(*read_of(model, name))).abs().max() < 1


def test_a_translator_learns_a_few_pairs_by_heart_and_says_where_it_looked(tmp_path: Path) -> None:
    for side in (0, 1):
        (tmp_path / f"pairs.{'en' if side == 0 else 'de'}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    data = {"train": ["pairs.en", "pairs.de"], "valid": ["pairs.en", "pairs.de"], "format": "parallel"}
    recipe = recipe_from(
        {
            "model": {"size": "lstm-translator", "d_model": 32, "dropout": 0.0},
            "tokenizer": {"kind": "word"},
            "data": {**data, "header": ["en", "de"], "root": str(tmp_path), "seq_len": 16},
            "objective": {"kind": "translate"},
            "train": {"steps": 60, "tokens": 64, "threads": 1},
            "optimizer": {"rate": 0.02},
            "schedule": {"kind": "constant", "warmup": 1},
            "evaluate": {"every": 60, "log": 60},
            "checkpoint": {"every": 60},
        }
    )
    outcome, _ = run(recipe, tmp_path / "out")
    assert outcome.scores["loss"] < 0.1
    out = tmp_path / "out"
    model, tokenizer = load(out), load_tokenizer(out)
    for beam in (1, 3):
        texts = translate_all(model, tokenizer, [en for en, _ in PAIRS], beam=beam)  # type: ignore[arg-type]
        assert texts == [de for _, de in PAIRS]
    shown = said("inspect", out, PAIRS[0][0])
    assert "Alignment" in shown
    assert "decoder.0.cross.0" in shown
    assert "Who wrote it" not in shown


def test_a_language_model_learns_a_line_by_heart(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefgh\n" * 30)
    recipe = recipe_of(
        "lines",
        tmp_path,
        tokenizer={"kind": "char"},
        model={"d_model": 32, "dropout": 0.0, "n_layers": 1},
        train={"steps": 40, "tokens": 128},
        optimizer={"rate": 0.02},
        schedule={"kind": "constant", "warmup": 1},
        evaluate={"every": 40, "log": 40},
        checkpoint={"every": 40},
    )
    outcome, _ = run(recipe, tmp_path / "out")
    assert outcome.scores["loss"] < 0.3
    model, tokenizer = load(tmp_path / "out"), load_tokenizer(tmp_path / "out")
    assert generate(model, tokenizer, "abc", temperature=0.0, max_tokens=5) == "defgh"  # type: ignore[arg-type]


def test_the_commands_of_a_translator(tmp_path: Path) -> None:
    recipe, out, data = tmp_path / "recipe.toml", tmp_path / "out", tmp_path / "data"
    recipe.write_text(to_toml(recipe_of("translate", data)), encoding="utf-8")
    said("train", recipe, "--out", out, "--set", "train.steps=2")
    for side in ("en", "de"):
        (tmp_path / f"few.{side}").write_text("".join((data / f"pairs.{side}").read_text().splitlines(True)[:3]))
    found = json.loads(said("evaluate", out, f"{tmp_path / 'few.en'},{tmp_path / 'few.de'}", "--beam", 2, "--json"))
    assert "BLEU" in json.dumps(found)
    page = tmp_path / "page.html"
    asked = ("the cat sat", "--target", "a dog ran")
    said("inspect", out, *asked, "--out", page)
    assert all(f'"kind":"{kind}"' in page.read_text() for kind in ("coloured text", "arcs", "heads"))
    found = json.loads(said("inspect", out, *asked, "--json", "--show", "heads", "--show", "alignment"))
    assert found["alignment"]["pharaoh"].count("-") == 3
    (pattern,) = found["patterns"].values()
    assert torch.allclose(torch.tensor(pattern).sum(dim=-1), torch.tensor(1.0))
    assert "--head 1: this model has heads 0 … 0" in failed("inspect", out, *asked, "--head", 1)
    assert "is no Transformer" in failed("inspect", out, *asked, "--show", "writers")
    assert said("translate", "the cat", "--model", out, "--align", "--beam", 2)


def test_the_commands_of_a_language_model(tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.toml", tmp_path / "out"
    recipe.write_text(to_toml(recipe_of("lines", tmp_path / "data")), encoding="utf-8")
    said("train", recipe, "--out", out, "--set", "train.steps=2")
    found = json.loads(said("evaluate", out, tmp_path / "data/text.txt", "--json"))
    assert "bits" in json.dumps(found)
    said("generate", "the cat", "--model", out, "--max-tokens", 3)
    shown = said("inspect", out, "the cat sat")
    assert "lstm, 2 decoder layers" in shown
    assert "What the answer comes from" in shown
    assert "Heads" not in shown
    assert "lstm has no attention" in failed("inspect", out, "the cat", "--show", "heads")
    assert "this model has no attention" in failed("inspect", out, "the cat", "--head", 0)
    for command in (
        ("lens", out, "the cat"),
        ("patch", out, "the cat", "the dog"),
        ("circuit", out, "--preset", "induction"),
        ("inspect", out, "the cat", "--method", "rollout"),
    ):
        assert "lstm is no Transformer" in failed(*command)
    for layout in ("hf", "ctranslate2", "onnx"):
        assert "lstm has no layout that other tools read" in failed("export", out, tmp_path / "away", "--to", layout)
    laws = json.loads(said("verify", out, "--quick", "--json"))
    verdicts = {entry["law"]: entry["verdict"] for entry in laws["entries"]}
    assert verdicts["cached = uncached"] == verdicts["packed = unpacked"] == "passed"
    assert verdicts["fused = explicit attention"] == "not applicable"


@pytest.mark.parametrize("name", RECURRENT)
def test_what_needs_a_stream_or_its_heads_says_so(name: str, tmp_path: Path) -> None:
    model = tiny(name, dtype=torch.float32)
    given = read_of(model, name)
    for ask in (
        lambda: decompose_residual(model, *given),
        lambda: logit_lens(model, *given),
        lambda: attention_rollout(model, *given),
        lambda: circuit_nodes(model),
        lambda: patch_sweep(model, given, given, metric=lambda logits: logits[:, -1, 0]),
    ):
        with pytest.raises(InputError, match=f"{name} is no Transformer, and has no residual stream"):
            ask()
    with pytest.raises(ConfigError, match=f"{name} has none: leave it out"):
        train(
            recipe_of("translate" if "translator" in name else "lines", tmp_path, train={"checkpointing": True}),
            tmp_path / "out",
        )
    with pytest.raises(CheckpointError, match="it runs in Cutaway only"):
        export(model, tmp_path / "away")


def test_half_precision_stays_near(tmp_path: Path) -> None:
    """States and cells keep their precision, whatever autocast says."""
    for name in RECURRENT:
        model = tiny(name, dtype=torch.float32)
        given = read_of(model, name)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            rough = model(*given).float()
        exact = model(*given).detach()
        assert not close(rough, exact)
        assert (rough - exact).abs().max() < 0.05 * exact.abs().max()


def test_the_page_about_them_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "before.md").read_text()
    section = page.partition("## Recurrent networks")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    exec(block, {"__name__": "__main__"})
    assert capsys.readouterr().out == "torch.Size([1, 3, 32])\n"
