"""`cutaway circuit`: every preset finds heads, a circuit is saved, loaded and put to the test."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from decoding.test_translate import quick
from looked_into import check_page, data, failed, run, said, write_models
from tiny import tiny
from tokens.test_tokenizer import byte_level

from cutaway.checkpoints import load, save, tokenizer_of
from cutaway.cli.opened import waiting
from cutaway.inside.aligning import aligning
from cutaway.inside.circuits import Circuit, completeness, faithfulness, minimality
from cutaway.inside.induction import induction, repeated
from cutaway.inside.ioi import OURS, ROLES, Answers, make_prompts
from cutaway.tokens.train import train_tokenizer

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
    words = " ".join([*OURS.names, *OURS.places, *OURS.objects])
    texts = [f" {words} {words}", *OURS.sentences] * 3
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
    asked = make_prompts(tokenizer, 4, templates=OURS.halves()[1], seed=1).trial(model)
    assert told["faithfulness"] == pytest.approx(faithfulness(asked, kept), abs=1e-4)
    assert told["completeness"]["gap"] == pytest.approx(completeness(asked, kept).gap, abs=1e-3)
    assert told["minimality"] == pytest.approx(minimality(asked, kept), abs=1e-3)
    shown = said("circuit", speaker, "--preset", "ioi", *FEW, "--test", tmp_path / "c.json")
    assert "faithful" in shown
    said("circuit", speaker, "--preset", "ioi", *FEW, "--test", tmp_path / "c.json", "--out", tmp_path / "told.json")
    assert json.loads((tmp_path / "told.json").read_text())["same_weights"] is True


def test_templates_from_a_file(speaker: Path, tmp_path: Path) -> None:
    values = {"NAMES": OURS.names, "PLACES": OURS.places, "OBJECTS": OURS.objects}
    values["BABA_TEMPLATES"] = tuple(f"{sentence} [A]" for sentence in OURS.sentences[:2])
    (tmp_path / "t.json").write_text(json.dumps(values))
    assert data("circuit", speaker, "--preset", "ioi", *FEW, "--prompts", tmp_path / "t.json")["circuit"]["nodes"]


def test_induction_scores_are_the_library_s(speaker: Path, tmp_path: Path) -> None:
    found = data("circuit", speaker, "--preset", "induction", "--limit", 2)
    model, tokenizer = load(speaker), tokenizer_of(speaker)
    assert tokenizer is not None
    least = max(tokenizer.special_ids().values(), default=-1) + 1
    ids = repeated(tokenizer.vocab_size, rows=2, length=31, least=least)
    expected = induction(model, ids)
    assert found["induction"]["scores"] == pytest.approx(expected.induction.scores, abs=1e-5)
    assert found["loss_second"] == pytest.approx(expected.loss[1], abs=1e-3)
    said("circuit", speaker, "--preset", "induction", "--out", tmp_path / "c.json")
    told = data("circuit", speaker, "--preset", "induction", "--limit", 2, "--test", tmp_path / "c.json")
    assert told["nodes"] == len(found["circuit"]["nodes"])


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
    expected = aligning(quick(), byte_level(), *map(list, zip(*pairs, strict=True)))  # type: ignore[arg-type]
    assert found["n_copied"] == expected.n_copied
    assert found["lost_copied"]["scores"] == pytest.approx(expected.lost_copied.scores, abs=1e-4)
    (tmp_path / "none.txt").write_text("the cat\tdie Katze\n")
    none = ["--preset", "alignment", "--prompts", tmp_path / "none.txt"]
    assert "surely a copy" in failed("circuit", models["translator"], *none)
    with pytest.MonkeyPatch.context() as patched:  # what a random model says is long, and has no names
        patched.setattr(
            "cutaway.decoding.translate.translations", lambda *_, **__: [SimpleNamespace(text="Tom hat 25")]
        )
        (tmp_path / "alone.txt").write_text("So Tom has 25 cats.\n")
        alone = ["--preset", "alignment", "--prompts", tmp_path / "alone.txt"]
        assert data("circuit", models["translator"], *alone)["n_copied"] == 2


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
    assert "say what is next" in failed("circuit", models["bert"], "--preset", "ioi")
    assert "say what is next" in failed("circuit", models["bert"], "--preset", "induction")
    assert "alignment is of translators" in failed("circuit", speaker, "--preset", "alignment")
    assert "--prompts FILE" in failed("circuit", models["llama"], "--preset", "coreference")
    assert "ioi or induction" in failed("circuit", models["llama"], "--preset", "coreference", "--edges")
    assert "is no file" in failed("circuit", speaker, "--preset", "coreference", "--prompts", tmp_path / "none")
    assert "are one token" in failed("circuit", models["gpt2"], "--preset", "ioi")
    (tmp_path / "c.json").write_text("{}")
    assert "without 'name'" in failed("circuit", speaker, "--preset", "ioi", "--test", tmp_path / "c.json")
    said("circuit", speaker, "--preset", "induction", "--limit", 2, "--out", tmp_path / "c.json")
    assert "ioi or induction" in failed("circuit", speaker, "--preset", "coreference", "--test", tmp_path / "c.json")
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
    monkeypatch.setattr("cutaway.inside.ioi.Prompts.answers", lambda *_: Answers(ahead, ahead > 0))
    monkeypatch.setattr("cutaway.inside.induction.F.cross_entropy", lambda *_, **__: torch.arange(61.0)[None])
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
    monkeypatch.setattr("cutaway.inside.induction.F.cross_entropy", lambda *_, **__: -torch.arange(61.0)[None])
    assert run("circuit", speaker, "--preset", preset, *FEW).stderr == ""
