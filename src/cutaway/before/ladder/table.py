"""What a comparison found, as Markdown: the ladder, its samples, and where the rungs differ."""

from typing import Any

from cutaway.pictures import visible_text

FEW_STEPS = 100  # fewer, and a network has hardly begun


def table(found: dict[str, Any]) -> str:
    """From `ComparisonResults.to_dict`, or compare.json."""
    trained, scored = found["trained_on"], found["scored_on"]
    lines = [
        f"Learnt from {trained['tokens']:,} {found['unit']}; scored on {scored['bytes']:,} held-out bytes"
        f" ({scored['tokens']:,} tokens), the same for all.",
        "",
        "| rung | bits per byte | parameters | training | work | a sample |",
        "|---|---|---|---|---|---|",
    ]
    for rung in found["rungs"]:
        cells = rung["name"], f"{rung['bits_per_byte']:.3f}", f"{rung['parameters']:,}", f"{rung['seconds']:.1f} s"
        lines.append(_row(*cells, work(rung), _cell(rung["sample"])))
    lines += ["", *(f"- {rung['name']}: {rung['about']}" for rung in found["rungs"]), ""]
    lines += [line for said in hurried(found) for line in (f"**{said}.**", "")]
    lines += [*_where(found), *_agreement(found), *_gains(found["gains"])]
    return "\n".join(lines).rstrip() + "\n"


def hurried(found: dict[str, Any]) -> list[str]:
    """A sentence for each network that took too few steps to be compared."""
    return [
        f"{rung['name']} took {rung['steps']:,} steps only, too few to tell what it can learn"
        for rung in found["rungs"]
        if (rung.get("steps") or FEW_STEPS) < FEW_STEPS
    ]


def work(rung: dict[str, Any]) -> str:
    """Floating-point operations, or the number of n-grams counted."""
    if rung["flops"] is None:
        return f"{rung['counts']:,} counts"
    mantissa, _, power = f"{rung['flops']:.1e}".partition("e")
    return f"{mantissa} × 10^{int(power)} FLOPs"


def _where(found: dict[str, Any]) -> list[str]:
    names = [rung["name"] for rung in found["rungs"]]
    lines = [
        "Bits per byte by what is told: kinds of words and what is between them are all of the text; the last rows look"
        " at it in another way.",
        "",
        _row("", "of the bytes", *names),
        "|---" * (len(names) + 2) + "|",
    ]
    for row in found["where"]:
        bits = (f"{row['bits_per_byte'][name]:.2f}" for name in names)
        lines.append(_row(row["what"], f"{row['share']:.1%}", *bits))
    return [*lines, ""]


def _agreement(found: dict[str, Any]) -> list[str]:
    rungs = [rung for rung in found["rungs"] if rung["agreement"]]
    lines = [
        "Agreement: how often the form of the text is likelier than the other one (is or are, was or were):",
        "",
        _row("", "how many", *(rung["name"] for rung in rungs)),
        "|---" * (len(rungs) + 2) + "|",
    ]
    for name, n in found["agreement"].items():
        lines.append(_row(name, f"{n:,}", *(f"{rung['agreement'][name]:.0%}" for rung in rungs)))
    return [*lines, ""] if rungs else []


def _gains(gains: dict[str, Any]) -> list[str]:
    if not gains["words"]:
        return []
    better, worse = gains["of"]
    lines = [
        f"Words that {better} tells better than {worse} by most bits:",
        "",
        "| bits | … before | word |",
        "|---|---|---|",
    ]
    rows = [_row(f"{one['bits']:.1f}", _cell(one["before"]), _cell(one["word"])) for one in gains["words"]]
    return [*lines, *rows, ""]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """A text on one line, with nothing that ends the cell."""
    return (
        visible_text(" ".join(text.split()))
        .replace("|", "\\|")
        .replace("`", "'")
        .replace("<", "&lt;")
        .replace("*", "\\*")
    )
