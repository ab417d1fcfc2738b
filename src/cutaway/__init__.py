"""The Transformer, whole, and with its cover off. The rooms, in the order of the lecture:

tokens        text → ids and back
model         the parts: embeddings, positions, masks, attention, feed-forward, norms, blocks, encoder, decoder, heads
families      models assembled from parts, one file each
bundled       the models that come with Cutaway, by name
checkpoints   a model folder on disk; published layouts in and out
objectives    what a model is trained to do
data          files → examples → batches
decoding      from a model to words: greedy, sampling, beam search
evaluation    how good it is
training      the loop, its optimizer, its schedule, its exact resume
pictures      every chart, page and terminal picture
inside        what happens inside a model: attention, residual stream, lens, patching, circuits
certificate   what `cutaway verify` measures
before        what came before: Markov chains, n-grams, word vectors, Shannon's game, formal languages, the ladder
toys          demonstration models that train in a minute
serving       the models over HTTP; the page is not built yet
cli           one file per command; what they share in cli/shared

The names below are imported when they are first used, so that `import cutaway` costs nothing. Everything else is one
level down: `cutaway.inside.logit_lens`, `cutaway.decoding.greedy`, `cutaway.before.MarkovChain`.
"""

from typing import TYPE_CHECKING, Any

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.bundled import models
    from cutaway.certificate import verify
    from cutaway.checkpoints import export, load, load_tokenizer, pack, save
    from cutaway.decoding.classify import classify
    from cutaway.decoding.embed import embed
    from cutaway.decoding.fill import fill
    from cutaway.decoding.generate import generate
    from cutaway.decoding.translate import translate
    from cutaway.evaluation import evaluate
    from cutaway.families import build
    from cutaway.inside import describe, inspect
    from cutaway.model.tap import edit, tap_names, watch
    from cutaway.tokens.tokenizer_training import train_tokenizer
    from cutaway.training.train import train

    __version__: str

__all__ = [
    "__version__",
    "build",
    "classify",
    "describe",
    "edit",
    "embed",
    "evaluate",
    "export",
    "fill",
    "generate",
    "inspect",
    "load",
    "load_tokenizer",
    "models",
    "pack",
    "save",
    "tap_names",
    "train",
    "train_tokenizer",
    "translate",
    "verify",
    "watch",
]

_HOMES = {
    "build": "families",
    "classify": "decoding.classify",
    "describe": "inside",
    "edit": "model.tap",
    "embed": "decoding.embed",
    "evaluate": "evaluation",
    "export": "checkpoints",
    "fill": "decoding.fill",
    "generate": "decoding.generate",
    "inspect": "inside",
    "load": "checkpoints",
    "load_tokenizer": "checkpoints",
    "models": "bundled",
    "pack": "checkpoints",
    "save": "checkpoints",
    "tap_names": "model.tap",
    "train": "training.train",
    "train_tokenizer": "tokens.tokenizer_training",
    "translate": "decoding.translate",
    "verify": "certificate",
    "watch": "model.tap",
}


_get, __dir__ = lazy_names(__name__, {name: f"cutaway.{home}" for name, home in _HOMES.items()})


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _get(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:  # run from its source, where nothing can be installed
        return "not installed"
