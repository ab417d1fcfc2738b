"""Calls of `cutaway.inside` that report their progress, and models for them."""

from collections.abc import Callable
from typing import Any

import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.inside_commands import TEXT, pieces
from helpers.tiny_models import some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator
from helpers.winograd_sentences import TIRED, WIDE, WORDS
from tokenizers import AddedToken

from cutaway.inside.attribution.by_gradient import integrated_gradients
from cutaway.inside.attribution.deletion_curve import deletion_curve
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.circuits.circuit import Circuit, completeness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.circuits.coreference import accuracy_without_heads, coreference_heads
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.circuits.find import faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.patching.ablation import ablate_sweep
from cutaway.inside.patching.activations import mean_activations
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.progress import Progress
from cutaway.inside.reports.inspect import inspect
from cutaway.inside.residual.tuned_lens import kl_by_layer, train_tuned_lens
from cutaway.model.model import Model

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
