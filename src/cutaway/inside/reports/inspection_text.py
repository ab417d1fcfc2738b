"""An inspection in a terminal: a few blocks of at most 80 columns."""

import re
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.padding import Padding
from rich.text import Text

from cutaway.inside.attribution.result import METHODS
from cutaway.inside.reports.circuit_pictures import WRITERS
from cutaway.inside.reports.inspection_pictures import inspection_pictures
from cutaway.inside.reports.to_picture import SO_FAR
from cutaway.inside.reports.writers import Writers
from cutaway.pictures import ColouredText, HeatMap, PatchEvidence, Picture, visible_text
from cutaway.pictures.bars import half_blocks
from cutaway.pictures.console import Console, has_colours
from cutaway.pictures.svg import cut_label
from cutaway.pictures.terminal import shaded_block
from cutaway.pictures.terminal_tables import WORD, chance, draw_picture, grid, guesses, show_alignment, token_row
from cutaway.pictures.terminal_text import minus, shown

if TYPE_CHECKING:
    from cutaway.inside.reports.inspection import Inspection

BLUE, ORANGE = "#0078d4", "#cc4f00"  # for and against, as in `pictures.terminal`
MOST = 8  # writers and heads that are listed
LAST = 100  # tokens of a long text that are listed


def print_inspection(console: Console, found: "Inspection", which: str) -> None:
    """`which` says which sentence of a text this is, if there are several."""
    pictures = inspection_pictures(found)
    if not found.parts or "answer" in found.parts:
        _print_answer(console, found, which)
    if found.attribution is not None:
        _print_attribution(console, pictures["attribution"], found)
    if found.alignment is not None:
        _heading(console, "Alignment", "where each word of the translation looked")
        drawn = show_alignment(found.alignment, min(console.width, 80) - 2)
        console.print(Padding(drawn, (0, 0, 0, 2), expand=False), soft_wrap=True)
    if found.writers is not None:
        _print_writers(console, found.writers, pictures["writers"])
    if found.patterns is not None and found.parts == ("heads",):
        for name, picture in pictures.items():
            if name.startswith("heads"):
                draw_picture(console, picture)
                console.print()
    elif found.patterns is not None:
        _print_heads(console, found)


def _heading(console: Console, title: str, note: str = "") -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), ("  " + note if note else "", "dim")), soft_wrap=True)


def _print_answer(console: Console, found: "Inspection", which: str) -> None:
    console.print(Text(f"{found.name}: {found.architecture}{which}", "dim"))
    console.print(Text(shown(found.given), "bold"))
    if found.kind.translates:
        console.print(Text(shown(found.answer), "bold"))
    else:
        _print_guesses(console, found)
    for name, tokens in found.tokens.items() if not found.kind.reads_images else ():
        n = f"{len(tokens)}" + (f", the last {LAST}" if len(tokens) > LAST else "")
        _heading(console, "Tokens" if len(found.tokens) == 1 else f"Tokens of the {name}", n)
        console.print(Padding(token_row(tokens[-LAST:]), (0, 0, 0, 2), expand=False))


def _print_guesses(console: Console, found: "Inspection") -> None:
    for number, some in enumerate(found.guesses):
        _heading(console, found.kind.heading + (f" {number + 1}" if len(found.guesses) > 1 else ""))
        console.print(guesses([(_visible(text), p) for text, p in some], console))
        if found.told:
            text, p = found.asked[number]
            _note(console, f"asked about «{visible_text(text)}», p = {p:.2g}")


def _visible(text: str) -> str:
    """A token without the space before it, unless it is nothing else."""
    return visible_text(text).strip() or visible_text(text)


def _print_attribution(console: Console, picture: Picture, found: "Inspection") -> None:
    assert found.attribution is not None
    _heading(console, "What the answer comes from", METHODS[found.attribution.method])
    if isinstance(picture, PatchEvidence):
        _print_evidence(console, picture)
    else:
        assert isinstance(picture, ColouredText)
        if len(picture.outputs) == 1:
            marked = Text.from_ansi(" ".join(picture.marked(picture.values[0].tolist(), has_colours(console))))
            console.print(Padding(marked, (0, 0, 0, 2), expand=False))
            _note(console, "+ for it, − against it; more signs, more so")
        else:
            _print_sources(console, picture)
            _note(console, SO_FAR if len(found.attribution.parts) == 2 else "")
    _note(console, found.attribution.error_note)


def _print_sources(console: Console, words: ColouredText) -> None:
    """For each output the inputs that count most."""
    table = grid()
    for output, line in zip(words.outputs, words.values, strict=True):
        sources = Text()
        for at in (-abs(line)).argsort(kind="stable")[:3].tolist():
            if line[at]:
                sources.append(f"{cut_label(words.sources[at], WORD)} ", BLUE if line[at] > 0 else ORANGE)
                sources.append(minus(f"{line[at]:+.2f}   "), "dim")
        table.add_row(Text(f"  {cut_label(output, WORD)}", "bold"), Text("←", "dim"), sources)
    console.print(table)


def _note(console: Console, text: str) -> None:
    if text:
        console.print(Padding(Text(text, "dim"), (0, 0, 0, 2), expand=False))


def _print_evidence(console: Console, picture: PatchEvidence) -> None:
    """The image, and beside it the evidence of each of its patches, in blocks of the same size."""
    (values,) = picture.maps.values()
    height, width = picture.image.shape[:2]
    drawn = [] if picture.image.ndim != 2 or width > 32 or not console.is_terminal else [half_blocks(picture.image)]
    wide, high = (max(2, width // values.shape[1]), max(1, height // values.shape[0] // 2)) if drawn else (3, 1)
    lines = []
    for row in values.tolist():
        line = "".join(shaded_block(value, picture.scale, wide, has_colours(console)) for value in row)
        lines += [Text.from_ansi(line)] * high
    drawn.append(Text("\n").join(lines))
    console.print(Padding(Columns(drawn, padding=(0, 4)), (0, 0, 0, 2), expand=False))
    _note(console, f"░▒▓█ for it, ·-=≡ against it; up to {picture.scale.high:.2g}")


def _print_writers(console: Console, found: Writers, picture: Picture) -> None:
    if len(found.outputs) > 1:
        _heading(console, "Who wrote it", "logit of each output − logit of its runner-up")
        assert isinstance(picture, HeatMap)
        some = HeatMap(picture.values[:MOST], picture.rows[:MOST], picture.columns, colours="diverging")
        draw_picture(console, some, heading=False)
        _note(console, WRITERS)
        return
    right, wrong = (_visible(one[0]) for one in (found.outputs, found.versus))
    total = float(found.scores.sum())
    what = f"logit of «{right}»" + (f" − logit of «{wrong}»" if wrong else "") + minus(f" = {total:+.2f}")
    _heading(console, "Who wrote it", what)
    best = found.best(MOST)
    most = max(abs(scores[0]) for _, scores in best) or 1.0
    table = grid()
    for name, (score,) in best:
        bar = ("█" if score > 0 else "▒") * max(1, round(24 * abs(score) / most))
        style = BLUE if score > 0 else ORANGE
        table.add_row(Text(f"  {name}"), Text(minus(f"{score:+.2f}")), Text(bar, style))
    rest = total - sum(scores[0] for _, scores in best)
    table.add_row(Text(f"  {len(found.names) - len(best)} others", "dim"), Text(minus(f"{rest:+.2f}"), "dim"))
    console.print(table)
    for name, _ in best:
        if head := re.fullmatch(r"\w+coder\.(\d+)\.(attention|cross)\.(\d+)", name):
            part = {"attention": "attention", "cross": "cross-attention"}[head[2]]
            _note(console, f"{name} is head {head[3]} in the {part} of block {head[1]}, counted from 0")
            break


def _print_heads(console: Console, found: "Inspection") -> None:
    looks = sorted(found.strongest_looks(), key=lambda look: -look["weight"])[:MOST]
    if not looks:
        return
    _heading(console, "Heads", "the sharpest looks, away from the word itself and the first token")
    table = grid()
    for look in looks:
        where = Text.assemble(_visible(look["from"]), (" → ", "dim"), _visible(look["to"]))
        table.add_row(Text(f"  {look['head']}"), *chance(look["weight"], console), where)
    console.print(table)
