"""The Transformer, whole, and with its cover off. The rooms, in the order of the lecture:

tokens        text → ids and back
model         the parts: embeddings, positions, masks, attention, feed-forward, norms, blocks, encoder, decoder, heads
families      assemblies of parts, one file each
baselines     what came before: Markov chains, n-grams, recurrent models
bundled       the models that come along, and how a name finds one
checkpoints   a model folder on disk; published layouts in and out
objectives    what a model is trained to do
data          files → examples → batches
training      the loop, its optimizer, its schedule, its exact resume
decoding      what may come next: greedy, sampling, beam search
evaluation    how good it is
inside        what happens in there: attention, residual stream, lens, patching, circuits
certificate   what `cutaway verify` measures
studies       experiments that use all of the above
serving       the model behind HTTP, and the page
cli           one file per command

Not built yet: serving, and most of baselines.

The names below are imported when first used, so that `import cutaway` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.bundled import models
    from cutaway.certificate import verify
    from cutaway.checkpoints import export, load, load_tokenizer, save
    from cutaway.decoding import greedy, greedy_translate, speculative, trace_beam
    from cutaway.decoding.classify import classify
    from cutaway.decoding.embed import embed
    from cutaway.decoding.fill import fill
    from cutaway.decoding.generate import generate
    from cutaway.decoding.translate import translate
    from cutaway.families import build
    from cutaway.inside.ablation import ablate_sweep
    from cutaway.inside.attribution import gradient_x_input, integrated_gradients
    from cutaway.inside.circuits import Circuit, completeness, faithfulness, minimality
    from cutaway.inside.estimate import agreement, estimate_sweep
    from cutaway.inside.explain import explain_blank, explain_image, explain_label, explain_next, explain_translation
    from cutaway.inside.faithful import deletion_curve
    from cutaway.inside.inspection import look_inside
    from cutaway.inside.lens import logit_lens
    from cutaway.inside.looked_at import attention_rollout, value_weighted
    from cutaway.inside.metrics import LogitDifference, LogProbability
    from cutaway.inside.neighbours import WordVectors
    from cutaway.inside.patch import Ablate, Patch, intervene, means, record
    from cutaway.inside.paths import patch_paths
    from cutaway.inside.place import Place
    from cutaway.inside.shown import picture_of
    from cutaway.inside.steering import Steering
    from cutaway.inside.stream import writes
    from cutaway.inside.sweep import sweep
    from cutaway.inside.trial import trial
    from cutaway.inside.tuned import TunedLens, train_lens
    from cutaway.model.tap import edit, tap_names, watch
    from cutaway.objectives import next_token_loss
    from cutaway.tokens.train import train_tokenizer
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
    "agreement",
    "attention_rollout",
    "build",
    "classify",
    "completeness",
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
    "integrated_gradients",
    "intervene",
    "load",
    "load_tokenizer",
    "logit_lens",
    "look_inside",
    "means",
    "minimality",
    "models",
    "next_token_loss",
    "patch_paths",
    "picture_of",
    "record",
    "save",
    "speculative",
    "sweep",
    "tap_names",
    "trace_beam",
    "train",
    "train_lens",
    "train_tokenizer",
    "translate",
    "trial",
    "value_weighted",
    "verify",
    "watch",
    "writes",
]

_HOME = {
    "Ablate": "cutaway.inside.patch",
    "Circuit": "cutaway.inside.circuits",
    "LogProbability": "cutaway.inside.metrics",
    "LogitDifference": "cutaway.inside.metrics",
    "Patch": "cutaway.inside.patch",
    "Place": "cutaway.inside.place",
    "Steering": "cutaway.inside.steering",
    "TunedLens": "cutaway.inside.tuned",
    "WordVectors": "cutaway.inside.neighbours",
    "ablate_sweep": "cutaway.inside.ablation",
    "agreement": "cutaway.inside.estimate",
    "attention_rollout": "cutaway.inside.looked_at",
    "build": "cutaway.families",
    "classify": "cutaway.decoding.classify",
    "completeness": "cutaway.inside.circuits",
    "deletion_curve": "cutaway.inside.faithful",
    "edit": "cutaway.model.tap",
    "embed": "cutaway.decoding.embed",
    "estimate_sweep": "cutaway.inside.estimate",
    "explain_blank": "cutaway.inside.explain",
    "explain_image": "cutaway.inside.explain",
    "explain_label": "cutaway.inside.explain",
    "explain_next": "cutaway.inside.explain",
    "explain_translation": "cutaway.inside.explain",
    "export": "cutaway.checkpoints",
    "faithfulness": "cutaway.inside.circuits",
    "fill": "cutaway.decoding.fill",
    "generate": "cutaway.decoding.generate",
    "gradient_x_input": "cutaway.inside.attribution",
    "greedy": "cutaway.decoding",
    "greedy_translate": "cutaway.decoding",
    "integrated_gradients": "cutaway.inside.attribution",
    "intervene": "cutaway.inside.patch",
    "load": "cutaway.checkpoints",
    "load_tokenizer": "cutaway.checkpoints",
    "logit_lens": "cutaway.inside.lens",
    "look_inside": "cutaway.inside.inspection",
    "means": "cutaway.inside.patch",
    "minimality": "cutaway.inside.circuits",
    "models": "cutaway.bundled",
    "next_token_loss": "cutaway.objectives",
    "patch_paths": "cutaway.inside.paths",
    "picture_of": "cutaway.inside.shown",
    "record": "cutaway.inside.patch",
    "save": "cutaway.checkpoints",
    "speculative": "cutaway.decoding",
    "sweep": "cutaway.inside.sweep",
    "tap_names": "cutaway.model.tap",
    "trace_beam": "cutaway.decoding",
    "train": "cutaway.training.train",
    "train_lens": "cutaway.inside.tuned",
    "train_tokenizer": "cutaway.tokens.train",
    "translate": "cutaway.decoding.translate",
    "trial": "cutaway.inside.trial",
    "value_weighted": "cutaway.inside.looked_at",
    "verify": "cutaway.certificate",
    "watch": "cutaway.model.tap",
    "writes": "cutaway.inside.stream",
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
