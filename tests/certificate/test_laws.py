"""The certificate passes what is sound, in every family and task, and the right line fails when something is broken."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, SIZES, tiny
from helpers.tokenizers_of_bytes import byte_level
from torch import Tensor
from transformers import GPT2LMHeadModel, logging

from cutaway import verify
from cutaway.certificate import Certificate, export_laws, laws, subject
from cutaway.certificate.entry import NotMeasured, difference
from cutaway.certificate.inputs import short_inputs
from cutaway.checkpoints import export, hf
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import GreedySearch, Search
from cutaway.errors import CheckpointError, InputError
from cutaway.model import attention, masks, norms
from cutaway.model.beam_cache import Tree
from cutaway.model.cache import Cache, Store
from cutaway.model.model import Model
from cutaway.model.positions import Rotary, Sinusoidal
from cutaway.model.precision import with_precision

TASKS: dict[str, list[dict[str, Any]]] = {
    "bert": [{"task": task, "n_classes": 3} for task in ("classify", "tag")]
    + [{"task": task} for task in ("pretrain", "next_sentence", "regress", "hidden")],
    "roberta": [{"task": "classify", "n_classes": 3}, {"task": "tag", "n_classes": 3}, {"task": "hidden"}],
    "roformer": [{"task": "classify", "n_classes": 3}, {"task": "regress"}, {"task": "hidden"}],
    "gpt": [{"task": "classify", "n_classes": 3, "d_ff": 96}, {"task": "hidden", "d_ff": 96}, {"d_ff": 96}],
    "gpt2": [{"task": "classify", "n_classes": 3}, {"task": "regress"}, {"task": "hidden"}],
    "llama": [{"task": "classify", "n_classes": 3}, {"task": "hidden"}],
    "transformer": [{"task": "hidden"}, {"positions": "sinusoidal_halves", "start_id": 1}],
    "t5": [{"task": "hidden"}],
    "vit": [{"task": "regress"}, {"task": "hidden"}],
}
CASES = [(name, {}) for name in ALL] + [(name, changes) for name, more in TASKS.items() for changes in more]
SCORES = "scores = uncached"
DECODING = {"beam 1 = greedy", "greedy in batches of 1, 3, 8", "beam 4 in batches of 1, 3, 8", SCORES}
HF = {"export to HF = native", "transformers = native"}


def sound(name: str, **changes: Any) -> Model:
    return tiny(name, dtype=torch.float32, **changes)


def failed(certificate: Certificate) -> set[str]:
    """The laws that were measured and found wrong, each by a number: a broken measurement proves no damage."""
    for entry in certificate.entries:
        assert entry.verdict != "error", entry
        if entry.verdict == "failed":
            assert (entry.value or 0.0) > (entry.tolerance or 0.0), entry
    return {entry.law for entry in certificate.entries if entry.verdict == "failed"}


def without(certificate: Certificate) -> set[str]:
    return {entry.law for entry in certificate.entries if entry.verdict == "not applicable"}


@pytest.mark.parametrize(("name", "changes"), CASES, ids=lambda x: str(x))
def test_every_family_and_task(name: str, changes: dict[str, Any]) -> None:
    model = sound(name, **changes)
    certificate = verify(model, quick=True)
    assert certificate.passed, [entry for entry in certificate.entries if entry.verdict in ("failed", "error")]
    assert certificate.entry("compiled = eager").why == "--quick"
    family, task = model.config.family, model.config.task
    expected = set() if task in ("language_model", "translate") else set(DECODING)
    computed = family in ("llama", "roformer") or (family == "transformer" and model.config.positions != "learned")
    expected |= set() if computed else {"tables = formulas"}
    expected |= {"packed = unpacked"} if family in ("transformer", "t5", "vit") else set()
    expected |= {"cached = uncached"} if family in ("bert", "roberta", "roformer", "vit") else set()
    expected |= {"left = right padding"} if family == "vit" else set()
    halves = getattr(model.config, "positions", "") == "sinusoidal_halves"
    expected |= HF if family == "transformer" and not halves else set()
    expected |= HF if family == "gpt" and not changes else set()  # its layout knows d_ff = 4 · d_model only
    assert without(certificate) == expected
    assert {entry.verdict for entry in certificate.entries} <= {"passed", "not applicable", "not measured"}
    for entry in certificate.entries:
        assert (entry.value is None) == (entry.verdict != "passed")
        assert entry.why or entry.inputs


def test_every_family_is_among_the_cases() -> None:
    assert {tiny(name).config.family for name in SIZES} == {
        "transformer", "t5", "bert", "roberta", "roformer", "gpt", "gpt2", "llama", "vit"
    }  # fmt: skip


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer", "t5"])
def test_a_mask_that_leaks_padding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "padding", lambda real: masks.EVERYWHERE)
    found = failed(verify(sound(name), quick=True))
    assert "left = right padding" in found
    if name in ("bert", "transformer", "t5"):  # what stands behind a text is the future, which a decoder hides anyway
        assert "batch = single" in found
    assert not found & HF


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5"])
def test_a_cache_that_forgets(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Store.append

    def forget(self: Store, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = append(self, keys, values)
        first = torch.tensor([[self.slots.start]]) if isinstance(self.slots, slice) else self.slots[:, :1]
        new = torch.arange(values.shape[2]) >= first  # what earlier calls stored is gone
        return keys, values * new[:, None, :, None]

    monkeypatch.setattr(Store, "append", forget)
    found = failed(verify(with_precision(sound(name), precision), quick=True))
    assert found <= {"cached = uncached", *DECODING}
    assert found >= {"cached = uncached", "beam 1 = greedy", SCORES}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5"])
def test_beams_that_change_places_and_take_nothing_along(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "reorder", lambda self, parents: None)
    found = failed(verify(with_precision(sound(name), precision), quick=True))
    assert found == {SCORES}  # the others compare such beams with themselves


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_a_wrong_export(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = subject.export

    def wrong(model: Model, folder: str) -> None:
        damaged = copy.deepcopy(model)
        first = next(p for p in damaged.parameters() if p.ndim > 1)
        first.data *= 1.001
        right(damaged, folder)

    monkeypatch.setattr(subject, "export", wrong)
    assert failed(verify(sound(name), quick=True)) == HF


def test_an_export_that_only_we_understand(monkeypatch: pytest.MonkeyPatch) -> None:
    names = hf._writer(sound("gpt2").config)
    layout = names.layout

    def swapped(config: Any) -> Any:
        def other(name: str) -> str:
            return name.replace("ln_1", "ln_x").replace("ln_2", "ln_1").replace("ln_x", "ln_2")

        return layout(config).renamed(other)

    monkeypatch.setattr(names, "layout", swapped)
    assert failed(verify(sound("gpt2"), quick=True)) == {"transformers = native"}


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer"])
def test_a_kernel_that_ignores_the_mask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "pattern_of", lambda scores, mask: scores.softmax(dim=-1))
    assert failed(verify(sound(name), quick=True)) == {"fused = explicit attention"}


@pytest.mark.parametrize("name", ["gpt", "transformer-pre-norm", "vit", "llama"])
def test_a_norm_whose_kernel_has_another_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = norms.RMSNorm if name == "llama" else norms.LayerNorm
    forward = kind.forward

    def other(self: Any, x: Tensor) -> Tensor:
        looked_at = self.reads("scale") or self.edits("scale")
        return forward(self, x) if looked_at else forward(self, x * 0.5)  # ε counts four times as much

    monkeypatch.setattr(kind, "forward", other)
    assert "fused = explicit attention" in failed(verify(sound(name, norm_eps=1e-2), quick=True))


@pytest.mark.parametrize("name", ["transformer", "transformer-rotary", "llama", "roformer"])
def test_a_table_that_was_not_filled(name: str) -> None:
    model = sound(name)
    table = next(part for part in model.modules() if isinstance(part, Rotary | Sinusoidal))
    next(table.buffers())[-1] = 0.0
    entry = verify(model, quick=True).entry("tables = formulas")
    assert (entry.verdict, entry.value) == ("failed", 1)
    assert (
        entry.why == f"{next(path for path, part in model.named_modules() if part is table)} differs from its formula"
    )


def test_a_tokenizer_that_knows_more_than_the_model_is_refused() -> None:
    with pytest.raises(CheckpointError, match="400 tokens, but the model knows 50"):
        verify(sound("gpt2"), tokenizer=byte_level(), quick=True)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_documents_that_see_each_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "same_document", lambda documents: masks.EVERYWHERE)
    assert failed(verify(sound(name), quick=True)) == {"packed = unpacked"}


def test_a_search_that_looks_at_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(self: GreedySearch, scores: Tensor) -> Tensor:
        return (scores.argmax(dim=-1) + (len(scores) > 3)) % scores.shape[-1]

    monkeypatch.setattr(GreedySearch, "choose", choose)
    assert failed(verify(sound("gpt2"), quick=True)) == {"beam 1 = greedy", "greedy in batches of 1, 3, 8"}


def test_a_beam_that_seeks_the_unlikeliest(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = BeamSearch.advance
    monkeypatch.setattr(BeamSearch, "advance", lambda self, logits: advance(self, -logits))
    assert failed(verify(sound("gpt2"), quick=True)) == {"beam 1 = greedy", SCORES}


def test_rows_that_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Cache.move

    def move(self: Cache, row: int, to: int, **filled: int | None) -> None:
        there = [values[to].clone() for values in self.values]
        right(self, row, to, **filled)
        for values, its in zip(self.values, there, strict=True):
            values[to] = its

    monkeypatch.setattr(Cache, "move", move)
    found = failed(verify(sound("gpt2"), quick=True))  # texts end at different steps, and others take their place
    assert found == DECODING


def test_a_search_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Search.__init__
    monkeypatch.setattr(Search, "__init__", lambda self, width, **room: begin(self, width, **room | {"ends": ()}))
    model = sound("gpt2", end_ids=list(range(0, 50, 3)))
    assert failed(verify(model, quick=True)) == {"beam 1 = greedy"}


def test_8_bits_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(model: Model, precision: str) -> Model:
        for part in model.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.data *= 2  # a scale that was forgotten
        return model

    monkeypatch.setattr(laws, "with_precision", twice)
    assert failed(verify(sound("gpt2"), quick=True)) == {"int8 ≈ fp32"}


def test_a_compiler_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: lambda *a, **k: function(*a, **k) * 1.001)
    assert failed(verify(sound("gpt2"))) == {"compiled = eager"}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "transformer", "vit"])
def test_numbers_that_are_none_fail_everywhere_and_can_be_written(name: str, tmp_path: Path) -> None:
    model = sound(name)
    stack = model.encoder if name in ("bert", "vit") else model.decoder
    next(stack[0].attention.parameters()).data[0] = float("nan")
    certificate = verify(model, quick=True)
    assert not certificate.passed
    weights = certificate.entry("weights are finite")
    name_of_it = next(name for name, tensor in model.named_parameters() if tensor.isnan().any())
    assert (weights.verdict, weights.value) == ("failed", 1)
    assert weights.why.startswith(f"{name_of_it} holds nan at [0")
    for entry in certificate.entries[1:]:
        if entry.law == "tables = formulas":
            assert entry.verdict in ("passed", "not applicable")
        elif entry.law in DECODING:
            assert entry.verdict == "not applicable" or "this model's scores are not finite numbers" in entry.why
        elif entry.verdict not in ("not applicable", "not measured"):
            assert (entry.verdict, entry.why) == ("failed", "a result is not a finite number")
    certificate.write(tmp_path / "certificate.json")


def test_one_row_that_is_no_number_shows() -> None:
    sound_row, none = torch.ones(3), torch.full((3,), float("nan"))
    assert math.isnan(difference([sound_row, none], [sound_row, sound_row]))
    assert math.isnan(difference([sound_row, none], [sound_row, none]))
    assert difference([sound_row], [sound_row, sound_row]) == float("inf")
    assert difference([sound_row, 3 * sound_row], [sound_row, 4 * sound_row]) == 0.25


def test_small_answers_are_held_to_the_same_bound() -> None:
    assert difference([torch.tensor([1e-6])], [torch.tensor([2e-6])]) == 0.5
    assert difference([torch.ones(1)], [torch.zeros(1)]) == 1
    with pytest.raises(NotMeasured, match="all results are 0"):
        difference([torch.zeros(1)], [torch.zeros(1)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_another_precision_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=r"model\.float\(\)"):
        verify(tiny("gpt2", dtype=dtype), quick=True)


@pytest.mark.parametrize("scale", [0.01, 10])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_small_and_large_weights_pass(name: str, scale: float) -> None:
    model = sound(name)
    for parameter in model.parameters():
        parameter.data *= scale if parameter.ndim > 1 else 1
    assert not failed(verify(model, quick=True))


def test_an_error_is_a_verdict_of_its_own_and_of_its_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Model, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no room")

    model = sound("gpt2")
    monkeypatch.setattr(type(model), "new_cache", broken)
    certificate = verify(model, quick=True)
    assert not certificate.passed
    wrong = {entry.law: entry.why for entry in certificate.entries if entry.verdict == "error"}
    assert wrong == dict.fromkeys({"cached = uncached", *DECODING}, "could not be measured: RuntimeError: no room")
    assert {entry.verdict for entry in certificate.entries} == {"passed", "not applicable", "not measured", "error"}
    assert without(certificate) == {"tables = formulas"}


def test_an_export_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: Model, folder: str) -> None:
        raise CheckpointError("no space left")  # not: this layout has no word for the model

    monkeypatch.setattr(subject, "export", full)
    certificate = verify(sound("gpt2"), quick=True)
    assert {entry.law for entry in certificate.entries if entry.verdict == "error"} == HF
    assert certificate.entry("export to HF = native").why == "could not be measured: no space left"


def test_a_model_in_8_bits_says_so() -> None:
    certificate = verify(with_precision(sound("gpt2"), "int8"), quick=True)
    assert certificate.precision == "int8"
    assert not failed(certificate)
    assert certificate.entry("scores = uncached").tolerance == 1e-5  # as in any precision: no rounding tips over
    assert without(certificate) == {"tables = formulas", *HF}


def test_8_bits_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def infinite(model: Model, precision: str) -> Model:
        for parameter in model.parameters():
            parameter.data.fill_(1e38)
        return model

    monkeypatch.setattr(laws, "with_precision", infinite)
    entry = verify(sound("gpt2"), quick=True).entry("int8 ≈ fp32")
    assert (entry.verdict, entry.why) == ("failed", "a result is not a finite number")


# --- what is not there ------------------------------------------------------------------------------------------------


def test_without_transformers_its_line_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_laws, "find_spec", lambda name: None)
    certificate = verify(sound("bert"), quick=True)
    entry = certificate.entry("transformers = native")
    assert (entry.verdict, entry.why, certificate.passed) == (
        "not measured",
        "the package transformers is not installed",
        True,
    )


def test_the_peer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    forward = GPT2LMHeadModel.forward
    monkeypatch.setattr(GPT2LMHeadModel, "forward", lambda self, **k: asked.append(k) or forward(self, **k))
    verify(sound("gpt2"), quick=True)
    assert len(asked) == 10


def test_the_seed_chooses_the_inputs_and_leaves_others_alone() -> None:
    model = sound("gpt2")
    state = torch.get_rng_state()
    first, again, other = (short_inputs(model, None, seed) for seed in (0, 0, 1))
    assert first.rows == again.rows != other.rows
    assert torch.equal(state, torch.get_rng_state())


def test_transformers_says_as_much_as_before(tmp_path: Path) -> None:
    model, before = tiny("gpt2", dtype=torch.float32), logging.get_verbosity()
    export(model, tmp_path)
    logging.set_verbosity_warning()
    try:
        export_laws._load(tmp_path, model)
        assert logging.get_verbosity() == logging.WARNING
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before)
