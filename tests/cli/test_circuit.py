"""`cutaway circuit`: every preset finds heads, a circuit is saved, loaded and put to the test."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.inside_commands import check_page, data, failed, run, said, write_models
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from torch import Tensor

from cutaway.checkpoints import load, save, tokenizer_of
from cutaway.cli.shared.inside import waiting
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.circuits.head_scores import HeadScores
from cutaway.inside.circuits.induction import InductionHeads, induction_heads, repeated_tokens
from cutaway.inside.circuits.ioi import IOI_TEMPLATES, IoiAnswers, ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ROLES
from cutaway.model.model import Model
from cutaway.tokens.tokenizer_training import train_tokenizer
from cutaway.training.checkpoint import write_checkpoint

FEW = ["--limit", 4, "--size", 6]
SCHEMAS = """The cat didn't see the dog because it was old.
it
The cat,The dog
The cat

The cat didn't see the dog because it was red.
it
The cat,The dog
The dog

The man saw the bird when he sat.
he
The man,The bird
The man

The man saw the bird when it flew.
it
The man,The bird
The bird
"""


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model to whom every name, place and object is one token."""
    words = " ".join([*IOI_TEMPLATES.names, *IOI_TEMPLATES.places, *IOI_TEMPLATES.objects])
    texts = [f" {words} {words}", *IOI_TEMPLATES.sentences] * 3
    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=700)
    path = tmp_path_factory.mktemp("speaker") / "gpt2"
    save(tiny("gpt2", vocab_size=tokenizer.vocab_size, max_len=64, dtype=torch.float32), path, tokenizer)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def test_ioi_is_found_saved_and_tested(speaker: Path, tmp_path: Path) -> None:
    found = data("circuit", speaker, "--preset", "ioi", *FEW)
    assert set(found["scores"]) == {*ROLES, "s_suppression"}
    assert list(found["curves"]["found"]) == ["5", "6"]
    assert found["curves"].keys() == {"found", "tested"}
    said("circuit", speaker, "--preset", "ioi", *FEW, "--out", tmp_path / "c.json")
    model, tokenizer = load(speaker), tokenizer_of(speaker)
    assert tokenizer is not None
    kept = Circuit.load(tmp_path / "c.json", model)
    assert kept.to_dict() == found["circuit"]
    told = data("circuit", speaker, "--preset", "ioi", *FEW, "--test", tmp_path / "c.json")
    asked = ioi_prompts(tokenizer, 4, templates=IOI_TEMPLATES.halves()[1], seed=1).task(model)
    assert told["faithfulness"] == pytest.approx(faithfulness(asked, kept), abs=1e-4)
    before = ioi_prompts(tokenizer, 4, templates=IOI_TEMPLATES.halves()[0], seed=0).task(model)
    for name, task in (("found", before), ("tested", asked)):
        shares = {str(n): task.share(task.measure(found["found"]["order"][:n])) for n in (5, 6)}
        assert found["curves"][name] == pytest.approx(shares, abs=1e-4)
    assert told["completeness"]["gap"] == pytest.approx(completeness(asked, kept).gap, abs=1e-3)
    assert told["minimality"] == pytest.approx(minimality(asked, kept), abs=1e-3)
    shown = said("circuit", speaker, "--preset", "ioi", *FEW, "--test", tmp_path / "c.json")
    assert "faithful" in shown
    assert f"without a part (largest of {len(told['completeness']['subsets'])} tried)" in shown
    said("circuit", speaker, "--preset", "ioi", *FEW, "--test", tmp_path / "c.json", "--out", tmp_path / "told.json")
    assert json.loads((tmp_path / "told.json").read_text())["same_weights"] is True


def test_idle_heads_are_counted(speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ["circuit", speaker, "--preset", "induction", "--limit", 2]
    said(*found, "--out", tmp_path / "c.json")
    for losses, expected in (
        ([0.1], "each of its heads adds"),
        ([0.0], "1 adds nothing: 0"),
        ([0.0, -1.0], "2 add nothing"),
    ):
        needed = {str(node): loss for node, loss in enumerate(losses)}
        monkeypatch.setattr("cutaway.inside.presets.table.minimality", lambda *_, needed=needed, **__: needed)
        assert expected in said(*found, "--test", tmp_path / "c.json")


def test_templates_from_a_file(speaker: Path, tmp_path: Path) -> None:
    values = {"NAMES": IOI_TEMPLATES.names, "PLACES": IOI_TEMPLATES.places, "OBJECTS": IOI_TEMPLATES.objects}
    values["BABA_TEMPLATES"] = tuple(f"{sentence} [A]" for sentence in IOI_TEMPLATES.sentences[:2])
    (tmp_path / "t.json").write_text(json.dumps(values))
    assert data("circuit", speaker, "--preset", "ioi", *FEW, "--prompts", tmp_path / "t.json")["circuit"]["nodes"]


def test_induction_scores_are_the_library_s(speaker: Path, tmp_path: Path) -> None:
    found = data("circuit", speaker, "--preset", "induction", "--limit", 2)
    model, tokenizer = load(speaker), tokenizer_of(speaker)
    assert tokenizer is not None
    least = max(tokenizer.special_ids().values(), default=-1) + 1
    ids = repeated_tokens(tokenizer.vocab_size, rows=2, length=31, least=least)
    expected = induction_heads(model, ids)
    assert found["induction"]["scores"] == pytest.approx(expected.induction.scores, abs=1e-5)
    assert found["loss_second"] == pytest.approx(expected.loss[1], abs=1e-3)
    said("circuit", speaker, "--preset", "induction", "--out", tmp_path / "c.json")
    told = data("circuit", speaker, "--preset", "induction", "--limit", 2, "--test", tmp_path / "c.json")
    assert told["nodes"] == len(found["circuit"]["nodes"])


def test_induction_is_tested_on_other_tokens_and_against_some_said_once(
    speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_on: list[Tensor] = []
    tested_on: list[tuple[Tensor, Tensor]] = []

    def looked(model: Model, ids: Tensor) -> InductionHeads:
        found_on.append(ids)
        return induction_heads(model, ids)

    def tried(model: Model, ids: Tensor, *, reference: Tensor, **more: Any) -> CircuitTask:
        tested_on.append((ids, reference))
        return circuit_task(model, ids, reference=reference, **more)

    monkeypatch.setattr("cutaway.inside.presets.induction_preset.induction_heads", looked)
    monkeypatch.setattr("cutaway.inside.presets.induction_preset.circuit_task", tried)
    asked = ["circuit", speaker, "--preset", "induction", "--limit", 2]
    said(*asked, "--out", tmp_path / "c.json")
    said(*asked, "--test", tmp_path / "c.json")
    (ours,) = found_on
    assert len(tested_on) == 2  # once when it is found
    for ids, reference in tested_on:
        assert ids.shape == reference.shape == ours.shape == (2, 62)
        assert torch.equal(ids[:, :31], ids[:, 31:])
        for one, other in ((ids, ours), (ids, reference), (reference[:, :31], reference[:, 31:])):
            assert (one == other).double().mean() < 0.1


def test_the_rise_is_that_of_every_checkpoint(speaker: Path, tmp_path: Path) -> None:
    """25 of them: the terminal shows every second one, the last among them."""
    folder = tmp_path / "run"
    shutil.copytree(speaker, folder)
    assert "no checkpoints" in failed("circuit", folder, "--preset", "induction", "--over-training")
    tokenizer, steps = tokenizer_of(speaker), range(10, 260, 10)
    assert tokenizer is not None
    made = {"vocab_size": tokenizer.vocab_size, "max_len": 64, "dtype": torch.float32}
    for step in steps:
        weights = dict(tiny("gpt2", seed=step, **made).named_parameters())
        write_checkpoint(folder / "run/checkpoints", step, {"weights": weights}, {})
    asked = ["circuit", folder, "--preset", "induction", "--over-training", "--limit", 2]
    found = data(*asked)["steps"]
    assert [one["step"] for one in found] == list(steps)
    least = max(tokenizer.special_ids().values(), default=-1) + 1
    expected = induction_heads(
        tiny("gpt2", seed=130, **made), repeated_tokens(tokenizer.vocab_size, rows=2, length=31, least=least)
    )
    for kind in ("induction", "previous"):
        assert found[12][kind] == pytest.approx(getattr(expected, kind).best(1)[0])
    assert (found[12]["first"], found[12]["second"]) == pytest.approx(expected.loss)
    shown = said(*asked).splitlines()
    at = next(place for place, line in enumerate(shown) if line.split()[:1] == ["step"])
    assert [line.split()[0] for line in shown[at + 1 :]] == [str(step) for step in steps[::2]]
    (_, block, _, head), score = found[-1]["induction"][0].split("."), found[-1]["induction"][1]
    assert f"{score:.2f}  block {block} head {head}" in shown[-1]
    assert max(map(len, shown)) <= 80
    said(*asked, "--out", tmp_path / "rise.html")
    check_page(tmp_path / "rise.html", "lines")
    for more in (["--edges"], ["--to", "de"], ["--test", tmp_path / "c.json"], ["--prompts", tmp_path / "none"]):
        assert "--over-training: with" in failed(*asked, *more)
    assert "--over-training: with" in failed("circuit", speaker, "--preset", "ioi", "--over-training")


def test_coreference(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "wsc.txt").write_text(SCHEMAS)
    found = data("circuit", models["llama"], "--preset", "coreference", "--prompts", tmp_path / "wsc.txt")
    assert found["n"] == 2
    assert found["matters"]["n"] == 2
    assert "without these" in said(
        "circuit", models["llama"], "--preset", "coreference", "--prompts", tmp_path / "wsc.txt", "--size", 2
    )


def test_alignment_of_given_and_of_own_translations(models: dict[str, Path], tmp_path: Path) -> None:
    pairs = [("I met Anna in 1999.", "Ich traf Anna 1999."), ("So Tom has 25 cats.", "Tom hat 25 Katzen.")]
    (tmp_path / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    found = data("circuit", models["translator"], "--preset", "alignment", "--prompts", tmp_path / "pairs.txt")
    expected = alignment_heads(quick(), byte_level(), *map(list, zip(*pairs, strict=True)))  # type: ignore[arg-type]
    assert found["n_copied"] == expected.n_copied
    assert found["lost_copied"]["scores"] == pytest.approx(expected.lost_copied.scores, abs=1e-4)
    (tmp_path / "none.txt").write_text("the cat\tdie Katze\n")
    none = ["--preset", "alignment", "--prompts", tmp_path / "none.txt"]
    assert "surely a copy" in failed("circuit", models["translator"], *none)
    with pytest.MonkeyPatch.context() as patched:  # what a random model says is long, and has no names
        patched.setattr(
            "cutaway.inside.presets.alignment_preset.translations",
            lambda *_, **__: [SimpleNamespace(text="Tom hat 25")],
        )
        (tmp_path / "alone.txt").write_text("So Tom has 25 cats.\n")
        alone = ["--preset", "alignment", "--prompts", tmp_path / "alone.txt"]
        assert data("circuit", models["translator"], *alone)["n_copied"] == 2


def test_only_lines_without_a_translation_are_translated(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def translated(_model: object, _tokenizer: object, sources: list[str], **_: object) -> list[SimpleNamespace]:
        asked.extend(sources)
        return [SimpleNamespace(text=f"{number} 25") for number, _ in enumerate(sources)]

    monkeypatch.setattr("cutaway.inside.presets.alignment_preset.translations", translated)
    told: list[list[str]] = []
    monkeypatch.setattr(
        "cutaway.inside.presets.alignment_preset.alignment_heads",
        lambda *args, **more: told.append(args[3]) or alignment_heads(*args, **more),
    )
    (tmp_path / "mixed.txt").write_text("Tom has 25.\nI met Anna in 1999.\tIch traf Anna 1999.\nHe is 25.\t \n")
    mixed = ["--preset", "alignment", "--prompts", tmp_path / "mixed.txt"]
    assert data("circuit", models["translator"], *mixed)["n_copied"] == 4
    assert asked == ["Tom has 25.", "He is 25."]
    assert told == [["0 25", "Ich traf Anna 1999.", "1 25"]]
    (tmp_path / "mixed.txt").write_text(" \n\n")
    assert "mixed.txt is empty: write sentences" in failed("circuit", models["translator"], *mixed)


def test_size_is_of_all_roles_together(speaker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"decoder.{layer}.attention.{head}" for layer in range(2) for head in range(4)]
    looks = HeadScores("induction", dict(zip(names, (0.9, 0.5, 0.4, 0.35, 0.1, 0.1, 0.1, 0.1), strict=True)))
    before = HeadScores("previous", dict(zip(names, (0.99, 0.1, 0.1, 0.1, 0.7, 0.6, 0.2, 0.2), strict=True)))
    found = InductionHeads(looks, looks, before, (2.0, 1.0))
    monkeypatch.setattr("cutaway.inside.presets.induction_preset.induction_heads", lambda *_: found)
    order = [(0, "induction"), (4, "previous token"), (1, "induction"), (5, "previous token"), (2, "induction")]
    for size in (1, 2, 3, 5):
        roles = data("circuit", speaker, "--preset", "induction", "--limit", 2, "--size", size)["circuit"]["roles"]
        assert roles == {names[node]: role for node, role in order[:size]}
    assert len(data("circuit", speaker, "--preset", "induction", "--limit", 2)["circuit"]["nodes"]) == 6
    shown = said("circuit", speaker, "--preset", "induction", "--limit", 2, "--size", 1)
    assert re.search(r"induction heads +4 with a score", shown)
    assert "1 head alone keeps" in shown


@pytest.mark.parametrize("preset", ["ioi", "induction"])
def test_edges_are_found_shown_and_saved(speaker: Path, tmp_path: Path, preset: str) -> None:
    asked = ["circuit", speaker, "--preset", preset, *FEW, "--edges"]
    shown = said(*asked)
    assert "who speaks to whom" in shown
    said(*asked, "--out", tmp_path / "c.json")
    kept = Circuit.load(tmp_path / "c.json", load(speaker))
    assert {end for _, end, _ in kept.edges} >= {"logits"}
    assert {start for start, _, _ in kept.edges} <= set(kept.nodes)
    assert "leave out --test" in failed(*asked, "--test", tmp_path / "c.json")


def test_a_bar_is_for_whoever_sees_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with waiting("looking") as report:
        report(1, 4)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with waiting("looking") as report:
        report(1, 4)
        report(10, 10)
    out, err = capsys.readouterr()
    assert out == ""
    assert "looking …" in err


@pytest.mark.parametrize("preset", ["ioi", "induction"])
def test_pages_and_views(speaker: Path, tmp_path: Path, preset: str) -> None:
    shown = said("circuit", speaker, "--preset", preset, *FEW)
    assert "one of the circuit's" in shown
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    said("circuit", speaker, "--preset", preset, *FEW, "--out", tmp_path / "page.html")
    maps = ["heat map"] * (6 if preset == "ioi" else 3)
    check_page(tmp_path / "page.html", "circuit", *(["lines"] if preset == "ioi" else []), *maps)
    said("circuit", speaker, "--preset", preset, *FEW, "--out", tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_what_no_preset_is_for_is_refused(models: dict[str, Path], speaker: Path, tmp_path: Path) -> None:
    assert "for language models" in failed("circuit", models["bert"], "--preset", "ioi")
    assert "for language models" in failed("circuit", models["bert"], "--preset", "induction")
    assert "alignment is for translators" in failed("circuit", speaker, "--preset", "alignment")
    assert "--prompts FILE" in failed("circuit", models["llama"], "--preset", "coreference")
    assert "ioi or induction" in failed("circuit", models["llama"], "--preset", "coreference", "--edges")
    assert "is not a file" in failed("circuit", speaker, "--preset", "coreference", "--prompts", tmp_path / "none")
    assert "repeats random tokens" in failed(
        "circuit", speaker, "--preset", "induction", "--prompts", tmp_path / "none"
    )
    for preset in ("ioi", "induction", "coreference"):
        assert "--to 'de' is for translators" in failed("circuit", speaker, "--preset", preset, "--to", "de")
    assert "are one token" in failed("circuit", models["gpt2"], "--preset", "ioi")
    (tmp_path / "c.json").write_text("{}")
    assert "without 'name'" in failed("circuit", speaker, "--preset", "ioi", "--test", tmp_path / "c.json")
    said("circuit", speaker, "--preset", "induction", "--limit", 2, "--out", tmp_path / "c.json", "--force")
    assert "ioi or induction" in failed("circuit", speaker, "--preset", "coreference", "--test", tmp_path / "c.json")
    again = ["circuit", speaker, "--preset", "induction", "--test", tmp_path / "c.json"]
    assert "is for translators" in failed(*again, "--to", "de")
    assert "repeats random tokens" in failed(*again, "--prompts", tmp_path / "none")
    assert ".json" in failed(
        "circuit", speaker, "--preset", "ioi", "--test", tmp_path / "c.json", "--out", tmp_path / "a.html"
    )
    assert run("circuit", speaker, "--preset", "everything").exit_code == 2
    assert run("circuit", speaker).exit_code == 2


@pytest.mark.parametrize("preset", ["ioi", "induction"])
def test_a_model_that_fails_the_task_is_warned_of_first(
    speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    ahead = torch.tensor([-2.0, 1.0])
    monkeypatch.setattr("cutaway.inside.circuits.ioi.IoiPrompts.answers", lambda *_: IoiAnswers(ahead, ahead > 0))
    monkeypatch.setattr("cutaway.inside.circuits.induction.F.cross_entropy", lambda *_, **__: torch.arange(61.0)[None])
    failing = run("circuit", speaker, "--preset", preset, *FEW)
    assert failing.exit_code == 0
    assert failing.stderr.startswith("warning: this model fails the task: ")
    if preset == "ioi":
        assert "is ahead by −0.50, in 50% of prompts" in failing.stderr
        assert "−0.50 (in 50% of prompts)" in failing.stdout
        said("circuit", speaker, "--preset", preset, *FEW, "--out", tmp_path / "c.json")
        tested = run("circuit", speaker, "--preset", preset, *FEW, "--test", tmp_path / "c.json")
        assert tested.stderr.startswith("warning: this model fails")
    assert not re.search(r"-\d", failing.stdout)
    ahead *= -1
    monkeypatch.setattr("cutaway.inside.circuits.induction.F.cross_entropy", lambda *_, **__: -torch.arange(61.0)[None])
    assert run("circuit", speaker, "--preset", preset, *FEW).stderr == ""
