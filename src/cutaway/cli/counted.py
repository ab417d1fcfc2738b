"""What `cutaway ngram` found, as data and as lines: the text, the model, tests, classes, a sample."""

from collections.abc import Sequence
from math import log
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

    def bits(of: "Predictor") -> float:
        return -float(of.log_probabilities(text.ids).sum()) / log(2)

    found, unknown = bits(model), text.unknown(cut)
    parts = model.models if isinstance(model, Mixture) else ()
    return {
        "file": str(path),
        "tokens": len(text.ids),
        "unknown": unknown,
        "bits_per_token": found / len(text.ids),
        "perplexity": 2 ** (found / len(text.ids)),
        "bits_per_byte": found / text.n_bytes if cut.whole and not unknown else None,
        "parts": [{"model": str(part), "bits_per_token": bits(part) / len(text.ids)} for part in parts],
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
    told = f"{test['bits_per_token']:.3f} bits each, perplexity {test['perplexity']:,.1f}"
    if test["bits_per_byte"] is not None:
        told += f", {test['bits_per_byte']:.3f} bits per byte"
    elif test["unknown"]:
        told += f"; {test['unknown']:.1%} unknown"
    lines = [f"test     {test['file']}: {test['tokens']:,} {unit} with ends, {told}"]
    return lines + [
        f"         {part['bits_per_token']:.3f} bits by the {part['model']} alone" for part in test["parts"]
    ]


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
