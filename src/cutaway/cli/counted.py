"""What `cutaway ngram` found, as data and as lines: the text, the model, tests, classes, a sample."""

from collections.abc import Sequence
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.baselines.brown import Classes
    from cutaway.baselines.predictor import Predictor
    from cutaway.studies.counted import Counted
    from cutaway.studies.cutting import Cut, TextIds

SHOWN = 8  # classes that are printed, and members of each
FEW = 10_000  # tokens, below which nearly all 3-grams of words stand there once


def as_dict(
    model: "Counted",
    told: "Predictor",
    cut: "Cut",
    text: "TextIds | None",
    tests: "Sequence[tuple[Path, TextIds]]",
) -> dict[str, Any]:
    """`told` is the model, or a mixture with it. Without a text it was not trained, but read."""
    from cutaway.baselines.class_ngram import ClassNGramModel

    counted, classes = (model.model, model.classes) if isinstance(model, ClassNGramModel) else (model, None)
    return {
        "text": text and _text(text, cut),
        "unit": cut.unit,
        "model": str(told),
        "ngrams": [len(table.keys) for table in counted.tables],
        "classes": classes and _classes(classes, cut),
        "tests": [_test(path, its, told, cut) for path, its in tests],
    }


def _text(text: "TextIds", cut: "Cut") -> dict[str, Any]:
    import numpy as np

    times = np.bincount(text.ids, minlength=len(cut.names))
    tokens, kinds = len(text.ids) - int(times[cut.end]), int((times > 0).sum()) - 1
    return {"bytes": text.n_bytes, "texts": text.texts, "tokens": tokens, "kinds": kinds, "too_little": tokens < FEW}


def _test(path: Path, text: "TextIds", model: "Predictor", cut: "Cut") -> dict[str, Any]:
    """Bits of each token, ends included; and of each byte, where the tokens are the whole text."""
    from cutaway.baselines.mixture import Mixture

    found, unknown = _bits(text, model, cut), text.unknown(cut)
    parts = model.models if isinstance(model, Mixture) else ()
    whole = cut.whole and not unknown and found["bits_per_token"] is not None
    return {
        "file": str(path),
        "tokens": len(text.ids),
        "unknown": unknown,
        **found,
        "bits_per_byte": found["bits_per_token"] * len(text.ids) / text.n_bytes if whole else None,
        "parts": [{"model": str(part), **_bits(text, part, cut)} for part in parts],
    }


def _bits(text: "TextIds", model: "Predictor", cut: "Cut") -> dict[str, Any]:
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


def _classes(classes: "Classes", cut: "Cut") -> dict[str, Any]:
    """The classes of the tree, the most frequent tokens of each first."""
    each = [
        {"bits": bits, "members": [cut.names[i] for i in classes.members(number)]}
        for number, bits in enumerate(classes.bits)
        if bits or number == 0
    ]
    return {"information": classes.information, "each": each}


# --- on a terminal ----------------------------------------------------------------------------------------------------


def show(found: dict[str, Any]) -> None:
    from rich.text import Text

    from cutaway.cli.showing import stdout
    from cutaway.cli.wording import shown

    lines, unit = [], found["unit"]
    if text := found["text"]:
        several = "1 text" if text["texts"] == 1 else f"{text['texts']:,} texts"
        lines.append(f"text     {text['tokens']:,} {unit}, {text['kinds']:,} different, in {several}")
        if text["too_little"]:
            lines.append(f"         too little to go by: below {FEW:,} {unit} nearly all that is counted stands once")
    lines += [f"model    {found['model']}"]
    lines += [f"         n-grams of each order: {', '.join(f'{n:,}' for n in found['ngrams'])}"]
    for test in found["tests"]:
        lines += _test_lines(test, unit)
    lines += _class_lines(found["classes"]) if found["classes"] else []
    if found["sample"] is not None:
        lines.append(f"sample   {shown(found['sample'])}")
    if found["out"] is not None:
        lines.append(f"wrote    {found['out']}")
    lines.append(f"         {found['seconds']:.1f} s")
    stdout().print(Text("\n".join(lines)))


def _test_lines(test: dict[str, Any], unit: str) -> list[str]:
    told = f"{_told(test['bits_per_token'])} bits each, perplexity {_told(test['perplexity'], 1)}"
    if test["bits_per_byte"] is not None:
        told += f", {test['bits_per_byte']:.3f} bits per byte"
    lines = [f"test     {test['file']}: {test['tokens']:,} {unit} with ends, {told}"]
    if test["unknown"]:
        known, unknown = _told(test["bits_per_known_token"]), _told(test["bits_per_unknown_token"])
        known += f" bits, perplexity {_told(test['perplexity_of_known'], 1)}"
        lines.append(f"         known {unit} {known}; {test['unknown']:.1%} are unknown, {unknown} bits")
    for part in test["parts"]:
        its = [part["bits_per_token"], part["bits_per_known_token"], part["bits_per_unknown_token"]]
        bits = " / ".join(map(_told, its if test["unknown"] else its[:1]))
        lines.append(f"         {bits} bits{' (all / known / unknown)' * bool(test['unknown'])}: {part['model']} alone")
    return lines


def _told(value: float | None, digits: int = 3) -> str:
    return "∞" if value is None else f"{value:,.{digits}f}"


def _class_lines(classes: dict[str, Any]) -> list[str]:
    from cutaway.baselines.chain import plain

    largest = sorted(classes["each"], key=lambda one: -len(one["members"]))[:SHOWN]
    width = max(len(one["bits"]) for one in largest)
    lines = [f"classes  one tells {classes['information']:.3f} bits of the next; the largest, as turns in their tree:"]
    for one in sorted(largest, key=lambda one: one["bits"]):
        members = " ".join(map(plain, one["members"][:SHOWN]))
        more = f" … {len(one['members']):,}" if len(one["members"]) > SHOWN else ""
        lines.append(f"         {one['bits']:{width}s}  {members}{more}")
    return lines
