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
    from cutaway.bundled import models as models
    from cutaway.certificate.verify import verify as verify
    from cutaway.checkpoints import export as export
    from cutaway.checkpoints import load as load
    from cutaway.checkpoints import load_tokenizer as load_tokenizer
    from cutaway.checkpoints import pack as pack
    from cutaway.checkpoints import save as save
    from cutaway.decoding.classify import classify as classify
    from cutaway.decoding.embed import embed as embed
    from cutaway.decoding.fill import fill as fill
    from cutaway.decoding.generate import generate as generate
    from cutaway.decoding.translate import translate as translate
    from cutaway.evaluation import evaluate as evaluate
    from cutaway.families import build as build
    from cutaway.inside import describe as describe
    from cutaway.inside import inspect as inspect
    from cutaway.model.tap import edit as edit
    from cutaway.model.tap import tap_names as tap_names
    from cutaway.model.tap import watch as watch
    from cutaway.tokens.tokenizer_training import train_tokenizer as train_tokenizer
    from cutaway.training.train import train as train

    __version__: str

_get, __dir__ = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _get(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cutaway")
    except PackageNotFoundError:  # run from its source, where nothing can be installed
        return "not installed"
