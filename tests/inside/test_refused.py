"""Questions that mean nothing are refused by name; what lies at the border of what is meant is answered."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from helpers.alignment_translator import translator
from helpers.circuit_tasks import asked_of
from helpers.tiny_models import inputs, some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.toy_recipes import still
from torch import nn

from cutaway.errors import InputError
from cutaway.inside.attribution.by_gradient import integrated_gradients
from cutaway.inside.attribution.explain import explain_image, explain_next, explain_translation
from cutaway.inside.attribution.rollout import attention_rollout
from cutaway.inside.circuits.circuit import Circuit, completeness
from cutaway.inside.circuits.coreference import coreference_heads
from cutaway.inside.circuits.find import FoundCircuits, faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.circuits.ioi import ioi_prompts
from cutaway.inside.model_kinds import ask
from cutaway.inside.patching.estimate import compare_sweeps
from cutaway.inside.patching.interventions import Ablate, Place, intervene
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.reports.inspect import inspect
from cutaway.inside.reports.options import AskOptions
from cutaway.inside.residual.frozen_norms import norm_step
from cutaway.inside.residual.stream import decompose_residual
from cutaway.inside.residual.tuned_lens import train_tuned_lens
from cutaway.model.tap import edit, watch
from cutaway.toys.names import word_tokenizer

IDS = some_ids(2, 6)
METRIC = LogitDifference(3, 5)
once = cache(byte_level)
translates = cache(translator)
trials = cache(lambda: asked_of("gpt2"))
speller = cache(lambda: tiny("gpt2", vocab_size=once().vocab_size))
PICTURE = np.zeros((8, 8, 3), dtype=np.uint8)


def gradients(name: str = "gpt2", **more: object) -> object:
    given = inputs(name)
    return integrated_gradients(still(name), *given, metric=lambda logits: logits.flatten(1)[:, 0], **more)  # type: ignore[arg-type]


def found() -> FoundCircuits:
    worth = {"decoder.0.attention.1": 1.0, "decoder.1.attention.0": 0.5}
    return FoundCircuits(trials(), "some", "by hand", tuple(worth), worth, {})


def circuit() -> Circuit:
    return Circuit.of(still("gpt2"), "some", ["decoder.0.attention.1"])


def read_without_positions() -> None:
    model = still("vit")
    with torch.no_grad(), intervene(model, Ablate(Place("head.logits", positions=0))):
        model(*inputs("vit"))


def edit_without_a_value() -> None:
    with edit(still("gpt2"), {"decoder.0.residual_after": lambda value: None}), torch.no_grad():  # type: ignore[dict-item, return-value]
        still("gpt2")(IDS)


def watch_nothing() -> None:
    with watch(still("gpt2")):
        pass


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "rule": (lambda: gradients(rule="simpson"), "rule='simpson' is not one of gauss_legendre"),
    "no steps": (lambda: gradients(steps=0), "steps=0 must be at least 1"),
    "keep of another shape": (lambda: gradients(keep=torch.ones(2, 3, dtype=torch.bool)), r"keep is \[\(2, 3\)\]"),
    "two baselines": (lambda: gradients(baseline=("zero", "pad")), "2 baselines for 1 inputs"),
    "mixed baselines": (
        lambda: gradients("transformer", baseline=(torch.zeros(24), "zero")),
        "one baseline is a tensor of numbers and the other is not",
    ),
    "ids of another shape": (lambda: gradients(baseline=some_ids(2, 3)), r"ids \(2, 3\) for tokens \(2, 7\)"),
    "a colour": (lambda: gradients("vit", baseline="green"), "baseline='green' is not known: of pictures"),
    "no such node": (lambda: circuit().without("decoder.1.attention.0"), "is not a node of the circuit 'some'"),
    "no subsets": (lambda: completeness(trials(), circuit(), []), "subsets is empty"),
    "a curve beyond": (lambda: faithfulness_curve(trials(), trials().among, [len(trials().among) + 1]), "nodes: 0…"),
    "a curve below": (lambda: find_circuit(trials(), "some", sizes=[-1]), "size -1 of"),
    "a circuit of 3": (lambda: found().circuit(3), "size=3: 2 nodes were ordered"),
    "a circuit of -1": (lambda: found().circuit(-1), "size=-1"),
    "grown by 0": (lambda: grow_circuit(trials(), "some", to=2, by=0), "by=0, to=2"),
    "grown too far": (lambda: grow_circuit(trials(), "some", to=len(trials().among) + 1), "grow by at least 1"),
    "a translator's pronouns": (lambda: coreference_heads(translates(), once(), []), "models that read one text"),
    "a norm": (
        lambda: norm_step("x", nn.Identity(), torch.ones(1, 1)),
        "x is a Identity, whose scale cannot be frozen",
    ),
    "show": (lambda: inspect(still("gpt2"), once(), "a", show=("heads", "tails")), "show='.*' is not one of"),
    "order": (lambda: ioi_prompts(word_tokenizer(), 2, orders=["AABB"]), "order 'AABB' is not one of ABBA, BABA"),
    "rollout heads": (lambda: attention_rollout(still("gpt2"), IDS, heads="min"), "heads='min'"),
    "rollout weights": (lambda: attention_rollout(still("gpt2"), IDS, weights="value"), "weights='value'"),
    "residual 1": (lambda: attention_rollout(still("gpt2"), IDS, residual=1.0), "residual=1.0 is not at least 0"),
    "residual < 0": (lambda: attention_rollout(still("gpt2"), IDS, residual=-0.1), "residual=-0.1"),
    "no cross": (lambda: decompose_residual(still("gpt2"), IDS, cross="source"), "no cross-attention to split"),
    "a position of none": (read_without_positions, "which has none: leave them out"),
    "a lens of a label": (lambda: train_tuned_lens(still("vit"), [inputs("vit")]), "gives one answer per text"),
    "a lens of nothing": (lambda: train_tuned_lens(still("gpt2"), []), "no batches to train on"),
    "no tokenizer": (lambda: ask(still("gpt2"), None, "a", AskOptions()), "give its tokenizer"),
    "an empty source": (lambda: explain_translation(translates(), once(), "", "a"), "the source has no tokens"),
    "an empty target": (lambda: explain_translation(translates(), once(), "a", ""), "the target has no tokens"),
    "an edit without a value": (edit_without_a_value, "returned None: return the new value"),
    "pixels": (lambda: explain_image(still("vit"), PICTURE, at="tokens"), 'it may be "patches"'),
    "nothing next": (lambda: explain_next(speller(), once(), "a", target=""), "'' has no tokens"),
    "heads of a stream": (lambda: patch_sweep(still("gpt2"), IDS, IDS, METRIC, heads=True), "heads=True: .* has none"),
    "nothing to watch": (watch_nothing, "nothing to watch"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_name(what: str) -> None:
    ask, said = REFUSED[what]
    with pytest.raises(InputError, match=said):
        ask()


def test_borders_are_inside() -> None:
    assert gradients(steps=1)
    assert attention_rollout(still("gpt2"), IDS, residual=0.0)
    assert found().circuit(0).nodes == ()
    assert found().circuit(2).nodes == found().order
    asked = trials()
    assert faithfulness_curve(asked, asked.among, [0, len(asked.among)]) == {0: 0.0, len(asked.among): 1.0}


def test_an_estimate_is_held_against_a_sweep_of_the_same() -> None:
    of = patch_sweep(still("gpt2"), IDS, IDS.flip(1), METRIC)
    assert compare_sweeps(of, of).sign == 1
    for other in (replace(of, how="zero"), replace(of, tap="decoder.*.x"), replace(of, values=of.values[:1])):
        with pytest.raises(InputError, match="make both with the same words"):
            compare_sweeps(of, other)
