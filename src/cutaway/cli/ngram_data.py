"""What `cutaway ngram` found, as data: the text, the model, tests, classes, a sample."""

from collections.abc import Sequence
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.before.ngrams.brown_clusters import WordClasses
    from cutaway.before.ngrams.ngram_folder import Counted
    from cutaway.before.ngrams.predictor import Predictor
    from cutaway.before.units import TextIds, Units

SHOWN = 8  # classes that are printed, and members of each
LONG_WORDS = 25  # bytes of a word on average: this language does not part its words, or they are none
FEW = 10_000  # tokens, below which nearly all 3-grams of words stand there once


def as_dict(
    model: "Counted",
    scorer: "Predictor",
    cut: "Units",
    text: "TextIds | None",
    tests: "Sequence[tuple[Path, TextIds]]",
    files: Sequence[Path] = (),
) -> dict[str, Any]:
    """`scorer` is the model, or a mixture with it, trained on `files`; `text` is None for a model that was read."""
    from cutaway.before.ngrams.ngram_of_classes import ClassNGramModel

    learnt = {path.resolve() for path in files}
    counted, classes = (model.model, model.classes) if isinstance(model, ClassNGramModel) else (model, None)
    return {
        "text": text and _text(text, cut),
        "unit": cut.unit,
        "model": str(scorer),
        "ngrams": [len(table.keys) for table in counted.tables],
        "classes": classes and _classes(classes, cut),
        "tests": [_test(path, its, scorer, cut) | {"learnt": path.resolve() in learnt} for path, its in tests],
    }


def _text(text: "TextIds", cut: "Units") -> dict[str, Any]:
    import numpy as np

    times = np.bincount(text.ids, minlength=len(cut.names))
    tokens, kinds = len(text.ids) - int(times[cut.end]), int((times > 0).sum()) - 1
    unparted = cut.unit == "words" and text.n_bytes > LONG_WORDS * max(tokens, 1)
    return {"bytes": text.n_bytes, "texts": text.texts, "tokens": tokens, "kinds": kinds, "too_little": tokens < FEW,
            "unparted": unparted}  # fmt: skip


def _test(path: Path, text: "TextIds", model: "Predictor", cut: "Units") -> dict[str, Any]:
    """Bits of each token, ends included; and of each byte, where the tokens are the whole text."""
    from cutaway.before.ngrams.mixture import Mixture

    found, unknown = _bits(text, model, cut), text.unknown(cut)
    parts = model.models if isinstance(model, Mixture) else ()
    whole = text.whole and found["bits_per_token"] is not None
    return {
        "file": str(path),
        "tokens": len(text.ids),
        "unknown": unknown,
        **found,
        "bits_per_byte": found["bits_per_token"] * len(text.ids) / text.n_bytes if whole else None,
        "parts": [{"model": str(part), **_bits(text, part, cut)} for part in parts],
    }


def _bits(text: "TextIds", model: "Predictor", cut: "Units") -> dict[str, Any]:
    """Of each token; of those that are known, and of <unk>, by themselves: models differ most in what they leave for
    <unk>, which says nothing of how well they tell a text. None for ∞, which JSON has not, and where there are none."""

    def mean(some: Any) -> float | None:
        value = -float(some.mean()) / log(2) if len(some) else 0.0
        return value if len(some) and isfinite(value) else None

    each = model.log_probabilities(text.ids)
    strange = text.ids == cut.unknown  # nowhere, where nothing is unknown
    bits, known = mean(each), mean(each[~strange])
    return {
        "bits_per_token": bits,
        "perplexity": None if bits is None else 2**bits,
        "bits_per_known_token": known,
        "perplexity_of_known": None if known is None else 2**known,
        "bits_per_unknown_token": mean(each[strange]),
    }


def _classes(classes: "WordClasses", cut: "Units") -> dict[str, Any]:
    """The classes of the tree, the most frequent tokens of each first."""
    each = [
        {"bits": bits, "members": [cut.names[i] for i in classes.members(number)]}
        for number, bits in enumerate(classes.bits)
        if bits or number == 0
    ]
    return {"information": classes.information, "each": each}
