"""The Transformer, whole, and with its cover off. The rooms, in the order of the lecture:

tokens        text → ids and back
model         the parts: embeddings, positions, masks, attention, feed-forward, norms, blocks, encoder, decoder, heads
families      assemblies of parts, one file each
bundled       the models that come along, and how a name finds one
checkpoints   a model folder on disk; published layouts in and out
objectives    what a model is trained to do
data          files → examples → batches
decoding      from a model to words: greedy, sampling, beam search
evaluation    how good it is
training      the loop, its optimizer, its schedule, its exact resume
pictures      every chart, page and terminal picture
inside        what happens in there: attention, residual stream, lens, patching, circuits
certificate   what `cutaway verify` measures
before        what came before: Markov chains, n-grams, word vectors, Shannon's game, formal languages, the ladder
toys          models that are trained in a minute, to be shown
serving       not built yet: the models over HTTP, and the page
cli           one file per command; what they share in cli/shared

The names below are imported when first used, so that `import cutaway` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.bundled import models
    from cutaway.certificate import verify
    from cutaway.checkpoints import export, load, load_tokenizer, pack, save
    from cutaway.decoding import greedy, greedy_translate, speculative, trace_beam
    from cutaway.decoding.classify import classify
    from cutaway.decoding.embed import embed
    from cutaway.decoding.fill import fill
    from cutaway.decoding.generate import generate
    from cutaway.decoding.translate import translate
    from cutaway.families import build
    from cutaway.inside.attribution.by_gradient import gradient_x_input, integrated_gradients
    from cutaway.inside.attribution.deletion_curve import deletion_curve
    from cutaway.inside.attribution.explain import (
        explain_blank,
        explain_image,
        explain_label,
        explain_next,
        explain_translation,
    )
    from cutaway.inside.attribution.rollout import attention_rollout, value_weighted
    from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
    from cutaway.inside.circuits.circuit_task import circuit_task
    from cutaway.inside.patching.ablation import ablate_sweep
    from cutaway.inside.patching.estimate import compare_sweeps, estimate_sweep
    from cutaway.inside.patching.interventions import Ablate, Patch, intervene, mean_activations, record_activations
    from cutaway.inside.patching.metrics import LogitDifference, LogProbability
    from cutaway.inside.patching.paths import patch_paths
    from cutaway.inside.patching.place import Place
    from cutaway.inside.patching.sweep import patch_sweep
    from cutaway.inside.reports.inspect import inspect
    from cutaway.inside.reports.to_picture import to_picture
    from cutaway.inside.residual.logit_lens import logit_lens
    from cutaway.inside.residual.steering import Steering
    from cutaway.inside.residual.stream import decompose_residual
    from cutaway.inside.residual.tuned_lens import TunedLens, train_tuned_lens
    from cutaway.inside.word_vectors import WordVectors
    from cutaway.model.tap import edit, tap_names, watch
    from cutaway.objectives import next_token_loss
    from cutaway.tokens.train_tokenizer import train_tokenizer
    from cutaway.training.train import train

    __version__: str

__all__ = [
    "Ablate",
    "Circuit",
    "LogProbability",
    "LogitDifference",
    "Patch",
    "Place",
    "Steering",
    "TunedLens",
    "WordVectors",
    "__version__",
    "ablate_sweep",
    "attention_rollout",
    "build",
    "circuit_task",
    "classify",
    "compare_sweeps",
    "completeness",
    "decompose_residual",
    "deletion_curve",
    "edit",
    "embed",
    "estimate_sweep",
    "explain_blank",
    "explain_image",
    "explain_label",
    "explain_next",
    "explain_translation",
    "export",
    "faithfulness",
    "fill",
    "generate",
    "gradient_x_input",
    "greedy",
    "greedy_translate",
    "inspect",
    "integrated_gradients",
    "intervene",
    "load",
    "load_tokenizer",
    "logit_lens",
    "mean_activations",
    "minimality",
    "models",
    "next_token_loss",
    "pack",
    "patch_paths",
    "patch_sweep",
    "record_activations",
    "save",
    "speculative",
    "tap_names",
    "to_picture",
    "trace_beam",
    "train",
    "train_tokenizer",
    "train_tuned_lens",
    "translate",
    "value_weighted",
    "verify",
    "watch",
]

_HOME = {
    "Ablate": "cutaway.inside.patching.interventions",
    "Circuit": "cutaway.inside.circuits.circuit",
    "LogProbability": "cutaway.inside.patching.metrics",
    "LogitDifference": "cutaway.inside.patching.metrics",
    "Patch": "cutaway.inside.patching.interventions",
    "Place": "cutaway.inside.patching.place",
    "Steering": "cutaway.inside.residual.steering",
    "TunedLens": "cutaway.inside.residual.tuned_lens",
    "WordVectors": "cutaway.inside.word_vectors",
    "ablate_sweep": "cutaway.inside.patching.ablation",
    "attention_rollout": "cutaway.inside.attribution.rollout",
    "build": "cutaway.families",
    "circuit_task": "cutaway.inside.circuits.circuit_task",
    "classify": "cutaway.decoding.classify",
    "compare_sweeps": "cutaway.inside.patching.estimate",
    "completeness": "cutaway.inside.circuits.circuit",
    "decompose_residual": "cutaway.inside.residual.stream",
    "deletion_curve": "cutaway.inside.attribution.deletion_curve",
    "edit": "cutaway.model.tap",
    "embed": "cutaway.decoding.embed",
    "estimate_sweep": "cutaway.inside.patching.estimate",
    "explain_blank": "cutaway.inside.attribution.explain",
    "explain_image": "cutaway.inside.attribution.explain",
    "explain_label": "cutaway.inside.attribution.explain",
    "explain_next": "cutaway.inside.attribution.explain",
    "explain_translation": "cutaway.inside.attribution.explain",
    "export": "cutaway.checkpoints",
    "faithfulness": "cutaway.inside.circuits.circuit",
    "fill": "cutaway.decoding.fill",
    "generate": "cutaway.decoding.generate",
    "gradient_x_input": "cutaway.inside.attribution.by_gradient",
    "greedy": "cutaway.decoding",
    "greedy_translate": "cutaway.decoding",
    "inspect": "cutaway.inside.reports.inspect",
    "integrated_gradients": "cutaway.inside.attribution.by_gradient",
    "intervene": "cutaway.inside.patching.interventions",
    "load": "cutaway.checkpoints",
    "load_tokenizer": "cutaway.checkpoints",
    "logit_lens": "cutaway.inside.residual.logit_lens",
    "mean_activations": "cutaway.inside.patching.interventions",
    "minimality": "cutaway.inside.circuits.circuit",
    "models": "cutaway.bundled",
    "next_token_loss": "cutaway.objectives",
    "pack": "cutaway.checkpoints",
    "patch_paths": "cutaway.inside.patching.paths",
    "patch_sweep": "cutaway.inside.patching.sweep",
    "record_activations": "cutaway.inside.patching.interventions",
    "save": "cutaway.checkpoints",
    "speculative": "cutaway.decoding",
    "tap_names": "cutaway.model.tap",
    "to_picture": "cutaway.inside.reports.to_picture",
    "trace_beam": "cutaway.decoding",
    "train": "cutaway.training.train",
    "train_tokenizer": "cutaway.tokens.train_tokenizer",
    "train_tuned_lens": "cutaway.inside.residual.tuned_lens",
    "translate": "cutaway.decoding.translate",
    "value_weighted": "cutaway.inside.attribution.rollout",
    "verify": "cutaway.certificate",
    "watch": "cutaway.model.tap",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("cutaway")
        except PackageNotFoundError:  # run from its source, where nothing can be installed
            return "not installed"
    if name not in _HOME:
        raise AttributeError(f"module 'cutaway' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
