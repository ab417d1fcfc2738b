"""What `cutaway ngram` found, on a terminal: the text, the model, tests, classes, a sample."""

from collections.abc import Sequence
from typing import Any

from cutaway.cli.ngram_data import FEW, SHOWN

LITTLE = 1_000  # tokens of a test, below which a tenth of a bit and more is chance
MARGIN = 9  # cells of the names in front


def show_ngrams(found: dict[str, Any], mixed: int | None = None) -> None:
    """`mixed`: tokens of the text that the shares of a mixture were fitted to."""
    from cutaway.pictures.terminal_text import shown

    lines, unit = [], found["unit"]
    if text := found["text"]:
        several = many(text["texts"], "texts")
        lines.append(f"text     {many(text['tokens'], unit)}, {text['kinds']:,} different, in {several}")
        if text["too_little"]:
            lines.append(f"         too little to go by: below {FEW:,} {unit} nearly all that is counted stands once")
        if text["unparted"]:
            lines.append("         its words are very long: where no spaces part them, --unit characters tells more")
    lines += [f"model    {found['model']}"]
    if mixed is not None and mixed < LITTLE:
        said = f"{many(mixed, unit)} with ends, too little: below {LITTLE:,} the shares are partly chance"
        lines.append(f"         mixed by {said}")
    lines += [f"         n-grams of each order: {', '.join(f'{n:,}' for n in found['ngrams'])}"]
    for test in found["tests"]:
        lines += _test_lines(test, unit)
    lines += _class_lines(found["classes"]) if found["classes"] else []
    if found["sample"] is not None:
        lines.append(f"sample   {shown(found['sample'])}")
    if found["out"] is not None:
        lines.append(f"wrote    {found['out']}")
    lines.append(f"         {found['seconds']:.1f} s")
    print_indented(lines, MARGIN)


def many(n: int, what: str) -> str:
    """1 word, 2 words."""
    return f"{n:,} {what[:-1] if n == 1 else what}"


def print_indented(lines: Sequence[str], margin: int) -> None:
    """Lines with a name in front; what has no room beside it goes on below, behind the margin."""
    from rich.text import Text

    from cutaway.pictures.terminal_tables import stdout

    console = stdout()
    for line in lines:
        rest = Text(line[margin:]).wrap(console, max(console.width - margin, 1))
        below = f"\n{' ' * margin}".join(part.plain.rstrip() for part in rest)
        console.print(Text(line[:margin] + below))


def _test_lines(test: dict[str, Any], unit: str) -> list[str]:
    """Known tokens come first: what a model leaves for <unk> says nothing of how well it tells a text."""
    told = f"{_told(test['bits_per_token'])} bits each, perplexity {_told(test['perplexity'], 1)}"
    if test["bits_per_byte"] is not None:
        told += f", {test['bits_per_byte']:.3f} bits per byte"
    head = f"test     {test['file']}: {many(test['tokens'], unit)} with ends"
    if test["unknown"]:
        known = f"{_told(test['bits_per_known_token'])} bits each, perplexity {_told(test['perplexity_of_known'], 1)}"
        share, bits = f"{test['unknown']:.1%} are unknown", f"{_told(test['bits_per_unknown_token'])} bits each"
        lines = [f"{head}; known {unit} {known}", f"         {share}, {bits}; with them {told}"]
    else:
        lines = [f"{head}, {told}"]
    if test["learnt"]:
        lines.append(
            "         the model learnt from this very text: that says how well it remembers, not how well it tells"
        )
    if test["tokens"] < LITTLE:
        lines.append(f"         too little to go by: below {LITTLE:,} {unit} a tenth of a bit and more is chance")
    for part in test["parts"]:
        its = [part["bits_per_known_token"], part["bits_per_unknown_token"], part["bits_per_token"]]
        bits = " / ".join(map(_told, its if test["unknown"] else its[:1]))
        lines.append(f"         {bits} bits{' (known / unknown / all)' * bool(test['unknown'])}: {part['model']} alone")
    return lines + _worse(test, unit)


def _worse(test: dict[str, Any], unit: str) -> list[str]:
    """Shares are fitted to unknown tokens as well, which may cost the known ones."""
    mixed, each = test["bits_per_known_token"], [part["bits_per_known_token"] for part in test["parts"]]
    best = min((bits for bits in each if bits is not None), default=None)
    if mixed is None or best is None or round(mixed, 3) <= round(best, 3):
        return []
    return [f"         on known {unit} the mixture is worse than its best part: by {mixed - best:.3f} bits"]


def _told(value: float | None, digits: int = 3) -> str:
    return "∞" if value is None else f"{value:,.{digits}f}"


def _class_lines(classes: dict[str, Any]) -> list[str]:
    from cutaway.before.markov.chain import plain_matrix

    largest = sorted(classes["each"], key=lambda one: -len(one["members"]))[:SHOWN]
    width = max(len(one["bits"]) for one in largest)
    lines = [f"classes  one tells {classes['information']:.3f} bits of the next; the largest, as turns in their tree:"]
    for one in sorted(largest, key=lambda one: one["bits"]):
        members = " ".join(map(plain_matrix, one["members"][:SHOWN]))
        more = f" … {len(one['members']):,}" if len(one["members"]) > SHOWN else ""
        lines.append(f"         {one['bits']:{width}s}  {members}{more}")
    return lines
