"""What `cutaway inspect` shows in a terminal: a few blocks of at most 80 columns."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cutaway.cli.shared.format import minus
from cutaway.cli.shared.inside import coloured, columns, draw_picture, screen

if TYPE_CHECKING:
    from cutaway.cli.shared.console import Console
    from cutaway.inside.report import Inspection, Writers
    from cutaway.pictures import ColouredText, Picture

BLUE, WARM = "#0078d4", "#cc4f00"  # for and against, as in `pictures.terminal`
MOST = 8  # writers and heads that are named
LAST = 100  # tokens of a long text that are listed


def show_inspection(
    found: "Inspection", pictures: "dict[str, Picture]", show: Sequence[str], title: str, *, told: bool = False
) -> None:
    """`told`: another answer than the model's own was asked about."""
    console = screen()
    if not show or "answer" in show:
        _answer(console, found, title, told)
    if found.attribution is not None:
        _attribution(console, pictures["attribution"], found)
    if found.alignment is not None:
        _rule(console, "Alignment", "where each word of the translation looked")
        _alignment(console, found)
    if found.writers is not None:
        _writers(console, found.writers, pictures["writers"])
    if found.patterns is not None:
        if list(show) == ["heads"]:
            for name, picture in pictures.items():
                if name.startswith("heads"):
                    draw_picture(console, picture)
                    console.print()
        else:
            _heads(console, found)


def _rule(console: "Console", title: str, note: str = "") -> None:
    from rich.text import Text

    console.print()
    console.print(Text.assemble((title, "bold"), ("  " + note if note else "", "dim")), soft_wrap=True)


def _answer(console: "Console", found: "Inspection", title: str, told: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from cutaway.cli.shared.tables import guesses
    from cutaway.cli.shared.wording import shown
    from cutaway.pictures import visible_text

    console.print(Text(title, "dim"))
    console.print(Text(shown(found.given), "bold"))
    if found.question == "translation":
        console.print(Text(shown(found.answer), "bold"))
    for number, some in enumerate(found.guesses if found.question != "translation" else []):
        name = {"next word": "What comes next", "picture": "What it is"}.get(
            found.question, found.question.capitalize()
        )
        name += f" {number + 1}" if len(found.guesses) > 1 else ""
        _rule(console, name)
        said = [(visible_text(text).strip() or visible_text(text), p) for text, p in some]
        console.print(guesses(said, console))
        if told:
            text, p = found.asked[number]
            _note(console, f"asked about «{visible_text(text)}», p = {p:.2g}")
    if found.question != "picture":
        for name, tokens in found.tokens.items():
            n = f"{len(tokens)}" + (f", the last {LAST}" if len(tokens) > LAST else "")
            _rule(console, "Tokens" if len(found.tokens) == 1 else f"Tokens of the {name}", n)
            console.print(Padding(columns(tokens[-LAST:]), (0, 0, 0, 2), expand=False))


def _attribution(console: "Console", picture: "Any", found: "Inspection") -> None:
    from rich.padding import Padding
    from rich.text import Text

    from cutaway.cli.shared.tables import WORD, grid
    from cutaway.inside.attribution.result import METHODS
    from cutaway.pictures.svg import cut_label
    from cutaway.pictures.to_picture import SO_FAR

    assert found.attribution is not None
    _rule(console, "What the answer comes from", METHODS[found.attribution.method])
    if picture.kind != "coloured text":
        _evidence(console, picture)
        _note(console, found.attribution.off)
        return
    words: ColouredText = picture
    if len(words.outputs) == 1:
        said = Text.from_ansi(" ".join(words.marked(words.values[0].tolist(), coloured(console))))
        console.print(Padding(said, (0, 0, 0, 2), expand=False))
        _note(console, "+ for it, − against it; more signs, more so")
        _note(console, found.attribution.off)
        return
    table = grid()
    for output, line in zip(words.outputs, words.values, strict=True):
        said = Text()
        for at in (-abs(line)).argsort(kind="stable")[:3].tolist():
            if line[at]:
                said.append(f"{cut_label(words.sources[at], WORD)} ", BLUE if line[at] > 0 else WARM)
                said.append(minus(f"{line[at]:+.2f}   "), "dim")
        table.add_row(Text(f"  {cut_label(output, WORD)}", "bold"), Text("←", "dim"), said)
    console.print(table)
    _note(console, SO_FAR if len(found.attribution.parts) == 2 else "")
    _note(console, found.attribution.off)


def _note(console: "Console", text: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    if text:
        console.print(Padding(Text(text, "dim"), (0, 0, 0, 2), expand=False))


def _evidence(console: "Console", picture: "Any") -> None:
    """The picture, and beside it what each of its patches said, in blocks of the same size."""
    from rich.columns import Columns
    from rich.padding import Padding
    from rich.text import Text

    from cutaway.pictures.bars import half_blocks
    from cutaway.pictures.terminal import shaded_block

    (values,) = picture.maps.values()
    height, width = picture.image.shape[:2]
    shown = [] if picture.image.ndim != 2 or width > 32 or not console.is_terminal else [half_blocks(picture.image)]
    wide, high = (max(2, width // values.shape[1]), max(1, height // values.shape[0] // 2)) if shown else (3, 1)
    lines = []
    for row in values.tolist():
        line = "".join(shaded_block(value, picture.scale, wide, coloured(console)) for value in row)
        lines += [Text.from_ansi(line)] * high
    shown.append(Text("\n").join(lines))
    console.print(Padding(Columns(shown, padding=(0, 4)), (0, 0, 0, 2), expand=False))
    _note(console, f"░▒▓█ for it, ·-=≡ against it; up to {picture.scale.high:.2g}")


def _alignment(console: "Console", found: "Inspection") -> None:
    from rich.padding import Padding

    from cutaway.cli.shared.tables import show_alignment

    assert found.alignment is not None
    console.print(
        Padding(show_alignment(found.alignment, min(console.width, 80) - 2), (0, 0, 0, 2), expand=False), soft_wrap=True
    )


def _writers(console: "Console", found: "Writers", picture: "Picture") -> None:
    from rich.text import Text

    from cutaway.cli.shared.tables import grid
    from cutaway.pictures import HeatMap, visible_text
    from cutaway.pictures.to_picture import WRITERS

    if len(found.outputs) > 1:
        _rule(console, "Who wrote it", "logit of each output − logit of its runner-up")
        assert isinstance(picture, HeatMap)
        some = HeatMap(picture.values[:MOST], picture.rows[:MOST], picture.columns, colours="diverging")
        draw_picture(console, some, heading=False)
        _note(console, WRITERS)
        return
    right, wrong = (visible_text(one[0]).strip() or visible_text(one[0]) for one in (found.outputs, found.versus))
    total = float(found.scores.sum())
    what = f"logit of «{right}»" + (f" − logit of «{wrong}»" if wrong else "") + minus(f" = {total:+.2f}")
    _rule(console, "Who wrote it", what)
    best = found.best(MOST)
    most = max(abs(scores[0]) for _, scores in best) or 1.0
    table = grid()
    for name, (score,) in best:
        bar = ("█" if score > 0 else "▒") * max(1, round(24 * abs(score) / most))
        style = BLUE if score > 0 else WARM
        table.add_row(Text(f"  {name}"), Text(minus(f"{score:+.2f}")), Text(bar, style))
    rest = total - sum(scores[0] for _, scores in best)
    table.add_row(Text(f"  {len(found.names) - len(best)} others", "dim"), Text(minus(f"{rest:+.2f}"), "dim"))
    console.print(table)
    for name, _ in best:
        if head := re.fullmatch(r"\w+coder\.(\d+)\.(attention|cross)\.(\d+)", name):
            part = {"attention": "attention", "cross": "cross-attention"}[head[2]]
            _note(console, f"{name} is head {head[3]} in the {part} of block {head[1]}, counted from 0")
            break


def _heads(console: "Console", found: "Inspection") -> None:
    from rich.text import Text

    from cutaway.cli.shared.tables import chance, grid
    from cutaway.pictures import visible_text

    looks = sorted(found.looks(), key=lambda look: -look["weight"])[:MOST]
    if not looks:
        return
    _rule(console, "Heads", "the sharpest looks, away from the word itself and the first token")
    table = grid()
    for look in looks:
        names = [visible_text(look[end]).strip() or visible_text(look[end]) for end in ("from", "to")]
        where = Text.assemble(names[0], (" → ", "dim"), names[1])
        table.add_row(Text(f"  {look['head']}"), *chance(look["weight"], console), where)
    console.print(table)
