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

Not built yet: baselines, serving.

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
    from cutaway.model.tap import edit, tap_names, watch
    from cutaway.objectives import next_token_loss
    from cutaway.tokens.train import train_tokenizer
    from cutaway.training.train import train

    __version__: str

__all__ = [
    "__version__",
    "build",
    "classify",
    "edit",
    "embed",
    "export",
    "fill",
    "generate",
    "greedy",
    "greedy_translate",
    "load",
    "load_tokenizer",
    "models",
    "next_token_loss",
    "save",
    "speculative",
    "tap_names",
    "trace_beam",
    "train",
    "train_tokenizer",
    "translate",
    "verify",
    "watch",
]

_HOME = {
    "build": "cutaway.families",
    "classify": "cutaway.decoding.classify",
    "edit": "cutaway.model.tap",
    "embed": "cutaway.decoding.embed",
    "export": "cutaway.checkpoints",
    "fill": "cutaway.decoding.fill",
    "generate": "cutaway.decoding.generate",
    "greedy": "cutaway.decoding",
    "greedy_translate": "cutaway.decoding",
    "load": "cutaway.checkpoints",
    "load_tokenizer": "cutaway.checkpoints",
    "models": "cutaway.bundled",
    "next_token_loss": "cutaway.objectives",
    "save": "cutaway.checkpoints",
    "speculative": "cutaway.decoding",
    "tap_names": "cutaway.model.tap",
    "trace_beam": "cutaway.decoding",
    "train": "cutaway.training.train",
    "train_tokenizer": "cutaway.tokens.train",
    "translate": "cutaway.decoding.translate",
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
