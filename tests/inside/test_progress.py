"""Long calls say how far they are; whoever stops one, at whatever moment, finds the model as it was."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from decoding.test_translate import translator
from helpers.bert_tokenizer import bert_tokenizer
from helpers.inside_commands import TEXT, pieces
from helpers.tiny_models import inputs, some_ids, tiny
from hypothesis import given
from hypothesis import strategies as st
from inside.circuits.test_coreference import TIRED, WIDE, WORDS
from tokenizers import AddedToken
from tokens.test_tokenizer import byte_level

from cutaway.inside.attribution.by_gradient import integrated_gradients
from cutaway.inside.attribution.deletion_curve import deletion_curve
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.circuits.circuit import Circuit, completeness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.circuits.coreference import accuracy_without_heads, coreference_heads
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.circuits.find import faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.interventions import mean_activations
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.progress import Progress, stages
from cutaway.inside.reports.inspect import inspect
from cutaway.inside.residual.tuned_lens import kl_by_layer, train_tuned_lens
from cutaway.model.model import Model
from cutaway.model.tap import watching

METRIC = LogitDifference(3, 5)
IDS, OTHER = some_ids(2, 7), some_ids(2, 7, seed=5)
TEXTS = ["We met Anna in 1984.", "In May Tom saw Berlin."]


def asked_of(model: Model) -> CircuitTask:
    return circuit_task(model, IDS, metric=METRIC, reference=OTHER, rows=1)


def circuit_of(asked: CircuitTask) -> Circuit:
    return Circuit.of(asked.model, "some", asked.among[:3], roles={asked.among[0]: "first"})


def schemas_of(model: Model) -> Any:
    return model, bert_tokenizer(WORDS, AddedToken("[MASK]")), [TIRED, WIDE]


READS: dict[str, Callable[[Model, Progress], object]] = {  # what each asks of a model, and how
    "sweep": lambda model, progress: patch_sweep(model, IDS, OTHER, METRIC, rows=8, progress=progress),
    "sweep of a measure": lambda model, progress: patch_sweep(
        model, IDS, OTHER, lambda logits: logits[:, -1, 3], over="heads", rows=8, progress=progress
    ),
    "ablate_sweep": lambda model, progress: ablate_sweep(
        model, IDS, metric=METRIC, over="heads", rows=8, progress=progress
    ),
    "means": lambda model, progress: mean_activations(
        model, IDS, places="decoder.*.attention.heads", rows=1, progress=progress
    ),
    "trial": lambda model, progress: circuit_task(
        model, IDS, metric=METRIC, reference=OTHER, groups=[0, 1], progress=progress
    ),
    "effects": lambda model, progress: asked_of(model).effects(progress=progress),
    "estimates": lambda model, progress: asked_of(model).estimates(progress=progress),
    "curve": lambda model, progress: faithfulness_curve(
        (asked := asked_of(model)), asked.among, [1, 4], progress=progress
    ),
    "find": lambda model, progress: find_circuit(asked_of(model), "some", sizes=[2, 4], shortlist=3, progress=progress),
    "grow": lambda model, progress: grow_circuit(asked_of(model), "some", to=5, by=2, progress=progress),
    "completeness": lambda model, progress: completeness(
        (asked := asked_of(model)), circuit_of(asked), progress=progress
    ),
    "minimality": lambda model, progress: minimality((asked := asked_of(model)), circuit_of(asked), progress=progress),
    "connect": lambda model, progress: find_edges((asked := asked_of(model)), circuit_of(asked), progress=progress),
    "integrated_gradients": lambda model, progress: integrated_gradients(
        model, IDS, metric=METRIC, batch_tokens=16, progress=progress
    ),
    "so many steps": lambda model, progress: integrated_gradients(
        model, IDS, metric=METRIC, steps=5, batch_tokens=16, progress=progress
    ),
    "deletion_curve": lambda model, progress: deletion_curve(
        model, IDS[:1], scores=torch.rand(1, 7), metric=METRIC, n_random=1, batch_tokens=32, progress=progress
    ),
    "train_lens": lambda model, progress: train_tuned_lens(model, [(IDS,), (OTHER,)], progress=progress),
    "kl_by_layer": lambda model, progress: kl_by_layer(model, [(IDS,), (OTHER,)], progress=progress),
    "look_inside": lambda model, progress: inspect(model, pieces(), TEXT, progress=progress),
    "look_inside, rollout": lambda model, progress: inspect(
        model, pieces(), TEXT, method="attention_rollout", progress=progress
    ),
    "coreference": lambda model, progress: coreference_heads(*schemas_of(model), rows=1, progress=progress),
    "matters": lambda model, progress: accuracy_without_heads(
        *schemas_of(model), ["decoder.0.attention.1"], draws=2, progress=progress
    ),
    "aligning": lambda model, progress: alignment_heads(model, byte_level(), TEXTS, TEXTS, progress=progress),  # type: ignore[arg-type]
}


def model_for(name: str) -> Model:
    if name == "aligning":
        return translator()
    return tiny("gpt2", vocab_size=280 if name.startswith("look_inside") else 50, max_len=64, start_id=0)


def plain(model: Model) -> torch.Tensor:
    with torch.no_grad():
        return model(*inputs("transformer")) if hasattr(model, "encode") else model(IDS)


@pytest.mark.parametrize("name", READS)
def test_a_call_says_how_far_it_is_and_ends_at_the_end(name: str) -> None:
    told: list[tuple[int, int]] = []
    READS[name](model_for(name), lambda done, total: told.append((done, total)))
    shares = [done / total for done, total in told]
    assert len(shares) >= 2
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1


@pytest.mark.parametrize("name", READS)
def test_whoever_stops_it_finds_the_model_as_it_was(name: str) -> None:
    model = model_for(name)
    before, weights = plain(model), {key: value.clone() for key, value in model.state_dict().items()}
    n = 0

    def count(done: int, total: int) -> None:
        nonlocal n
        n += 1

    READS[name](model, count)
    for stop in sorted({0, n // 2, n - 1}):
        left = stop

        def progress(done: int, total: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt("enough")

        with pytest.raises(KeyboardInterrupt, match="enough"):
            READS[name](model, progress)
        assert not watching()
        for part in model.modules():
            assert not part._forward_hooks
            assert not part._forward_pre_hooks
        assert not model.training
        assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
        assert torch.equal(plain(model), before)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=5))
def test_calls_inside_a_call_share_its_way(sizes: list[tuple[int, int]]) -> None:
    """Each of them counts by itself; together they go from 0 to 1, and each as far as it is large."""
    told: list[float] = []
    whole = sum(size for size, _ in sizes)
    if not whole:
        return
    before = 0
    for (size, n), progress in zip(sizes, stages(lambda a, b: told.append(a / b), *(s for s, _ in sizes)), strict=True):
        for done in range(n + 1):
            progress(done, n)
        before += size
        assert told[-1] == pytest.approx(before / whole)
    assert all(a <= b + 1e-12 for a, b in pairwise(told))
    assert told[0] == 0
