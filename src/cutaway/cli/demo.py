"""`cutaway demo`: the bundled models at work, in less than a minute."""

import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.bundled import HERE, names
from cutaway.bundled.info import look_at
from cutaway.cli.shared.models import Precision, as_trained, load_ready, tokenizer_for_text
from cutaway.cli.shared.options import Json
from cutaway.decoding.options import GenerationOptions
from cutaway.errors import CutawayError, InputError
from cutaway.pictures.terminal_tables import guesses, show_alignment, stdout
from cutaway.pictures.terminal_text import human, json_text, shown

if TYPE_CHECKING:
    from rich.text import Text

    from cutaway.decoding.confidence import TokenConfidence
    from cutaway.decoding.fill import Word
    from cutaway.pictures.console import Console

SENTENCE = "I ate an apple."
STORY = "In the middle of the night he heard a"
BLANK = "The cat sat on the [MASK]."
DIGIT = HERE / "digits" / "example.png"
SIDE = 28  # pixels of DIGIT
WIDE = 80  # columns at most
INDENT = 3
GAP = 4  # between what stands side by side
BAR = 16

Given = Annotated[
    str | None, typer.Argument(help="An English sentence to translate; with --reverse a word to spell backwards.")
]
Reverse = Annotated[bool, typer.Option("--reverse", help="Train a model here, in half a minute, to spell backwards.")]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="With --reverse: how many batches to learn from.")]
Answer = tuple[dict[str, Any], list[Any]]  # as data, and as it is shown


def demo(sentence: Given = None, reverse: Reverse = False, steps: Steps = None, as_json: Json = False) -> None:
    """See the bundled models at work.

    They translate, continue a story, fill a blank and recognise a digit.
    """
    if reverse:
        from cutaway.cli.demo_reverse import STEPS, WORDS, learn_to_reverse

        learn_to_reverse(sentence or WORDS[0], steps or STEPS, as_json)
        return
    if steps is not None:
        raise InputError("--steps is for --reverse, which trains a model: add it, or leave out --steps")
    if sentence is not None and not sentence.strip():
        raise InputError("there is no word in this sentence: write one, or leave it out")
    parts = _parts(sentence or SENTENCE)
    if not any(model in names() for model, *_ in parts):
        raise InputError("none of the demo's models is here: CUTAWAY_MODELS says where to look (docs/models.md)")
    console = _console()
    answers: dict[str, dict[str, Any]] = {}
    if not as_json:
        from rich.text import Text

        about = ": small Transformers that we trained, at work on this machine."
        console.print(Text.assemble(("Cutaway", "bold"), about), end="\n\n")
    for number, (model, title, ask) in enumerate((part for part in parts if part[0] in names()), 1):
        if not as_json:
            console.print(_heading(f"{number}  {title}", model, console))
        answers[model] = _answered(model, ask, console, as_json)
    if as_json:
        print(json_text(answers, 2))
    else:
        _next({name for name, said in answers.items() if "problem" not in said}, console)
    if any("problem" in said for said in answers.values()):
        raise typer.Exit(1)


def _parts(sentence: str) -> list[tuple[str, str, Callable[[Path, "Console"], Answer]]]:
    return [
        ("en-de", "Translate, and where each word looked", lambda *at: _there_and_back(sentence, *at)),
        ("books", "Continue a story", _story),
        ("cloze", "Fill a blank", _blank),
        ("digits", "Recognise a digit", _digit),
    ]


def _console() -> "Console":
    """As wide as the terminal, but no wider than is easy to read; the same in a pipe."""
    console = stdout()
    console.width = min(console.width, WIDE)
    return console


def _heading(title: str, model: str, console: "Console") -> "Text":
    from rich.text import Text

    n = look_at(model, names()[model]).parameters
    about = model if n is None else f"{model}, {human(n, '').strip()} parameters"
    room = console.width - len(title) - 2
    return Text.assemble((title, "bold"), "  ", (f"{about:>{room}}" if len(about) <= room else about, "dim"))


def _answered(
    model: str, ask: Callable[[Path, "Console"], Answer], console: "Console", as_json: bool
) -> dict[str, Any]:
    """A model's answer, shown as soon as it is there. A broken model does not stop the others."""
    from contextlib import nullcontext

    from rich.padding import Padding
    from rich.text import Text

    indent = (0, 0, 0, INDENT)
    quiet = as_json or not console.is_terminal
    try:
        with nullcontext() if quiet else console.status("…"):
            data, lines = ask(names()[model], console)
    except CutawayError as error:
        data, lines = {"problem": str(error)}, [Text(shown(str(error)), "red")]
    if not as_json:
        console.print()
        for line in lines:
            console.print(Padding(line, indent, expand=False) if line else "")
        console.print()
    return data


def _there_and_back(sentence: str, folder: Path, console: "Console") -> Answer:
    from rich.console import Group
    from rich.text import Text

    model, tokenizer, _ = load_ready(folder, Precision.auto)

    from cutaway.decoding.translate import translations
    from cutaway.model.model import EncoderDecoderModel

    if not isinstance(model, EncoderDecoderModel):
        raise InputError(f"{folder} is a {model.config.family} model, which does not translate")
    data, blocks, source = {}, [], sentence
    for to, way in (("de", "→ German"), ("en", "→ English")):
        (found,) = translations(model, tokenizer_for_text(tokenizer, folder), [source], to=to, align=True)
        data[to] = {"source": source, **found.to_dict()}
        said = [Text(way, "dim"), Text(shown(source)), Text(shown(found.text), "bold")]
        for one in found.sentences:
            if one.alignment is not None:
                said += [Text(), show_alignment(one.alignment, console.width - INDENT)]
        blocks.append(Group(*said))
        source = found.text
    return data, _side_by_side(blocks, console)


def _side_by_side(blocks: list[Any], console: "Console") -> list[Any]:
    """In one row if there is room, else one below the other."""
    from rich.table import Table

    if INDENT + sum(console.measure(block).maximum + GAP for block in blocks) - GAP > console.width:
        return [part for block in blocks for part in (block, "")][:-1]
    row = Table.grid(padding=(0, GAP, 0, 0))
    row.add_row(*blocks)
    return [row]


def _story(folder: Path, console: "Console") -> Answer:
    from rich.console import Group
    from rich.text import Text

    model, tokenizer, _ = load_ready(folder, Precision.auto)

    from cutaway.decoding.confidence import confidence_of
    from cutaway.decoding.generate import write_texts
    from cutaway.model.model import DecoderModel

    if not isinstance(model, DecoderModel):
        raise InputError(f"{folder} is a model for task={model.config.task!r}: only a language model tells a story")
    options = GenerationOptions(max_tokens=24, temperature=0.7, top_p=0.9, seed=1, bad_words=("\n",))
    told = write_texts(model, tokenizer_for_text(tokenizer, folder), [STORY], options)[0][0]
    words = confidence_of(model, tokenizer_for_text(tokenizer, folder), STORY, told.ids)
    data = {"prompt": STORY, "text": told.text, "words": [asdict(word) for word in words]}
    surprise = min((word for word in words[1:] if word.text.isalpha()), key=lambda word: word.probability, default=None)
    others = [
        Group(Text.assemble(("instead of ", "dim"), shown(word.text)), _candidates(word.candidates, console))
        for word in (*words[:1], surprise)
        if word is not None
    ]
    legend = "each word's probability: orange for a surprise, blue where it was sure"
    return data, [
        Text(f"{STORY} …"), "", *_over_chances(words, console.width - INDENT), Text(legend, "dim"), "",
        *_side_by_side(others, console),
    ]  # fmt: skip


def _candidates(words: "Iterable[Word]", console: "Console") -> Any:
    return guesses([(word.word, word.probability) for word in words], console, bar=BAR)


def _over_chances(words: "Iterable[TokenConfidence]", room: int) -> list["Text"]:
    """Words, and below each how likely it was, in colours from orange (a surprise) to blue (sure)."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    from cutaway.pictures.bars import probability_colour

    lines: list[Text] = []
    upper, lower = Text(), Text()
    for word in words:
        text, p = shown(word.text), word.probability
        chance = f"{p:.0%}" if p >= 0.005 else "<1%"
        wide = max(cell_len(text), len(chance))
        if upper.cell_len + wide > room:
            lines += [upper, lower]
            upper, lower = Text(), Text()
        upper.append(set_cell_size(text, wide) + " ", f"bold {probability_colour(p)}")
        lower.append(f"{chance:<{wide}} ", "dim")
    return [*lines, upper, lower]


def _blank(folder: Path, console: "Console") -> Answer:
    from rich.text import Text

    model, tokenizer, _ = load_ready(folder, Precision.auto)

    from cutaway.decoding.fill import fill

    found = fill(model, tokenizer_for_text(tokenizer, folder), BLANK, as_trained=as_trained(folder))
    return asdict(found), [Text(BLANK), "", _candidates(found.blanks[0], console)]


def _digit(folder: Path, console: "Console") -> Answer:
    model, *_ = load_ready(folder, Precision.auto)

    from cutaway.decoding.classify import classify
    from cutaway.evaluation.examples import picture_numbers
    from cutaway.pictures.bars import half_blocks

    picture = _pixels(DIGIT.read_bytes())
    found = classify(model, picture[None], **picture_numbers(folder))
    classes = guesses(list(found.probabilities.items()), console, bar=BAR)
    return {"picture": str(DIGIT), **asdict(found)}, _side_by_side([half_blocks(picture), classes], console)


def _pixels(png: bytes) -> Any:
    """Of our own file, which is grey, in one chunk and unfiltered, so that a demo needs no Pillow."""
    import numpy as np

    start = png.index(b"IDAT") + 4
    size = int.from_bytes(png[start - 8 : start - 4], "big")
    rows = np.frombuffer(zlib.decompress(png[start : start + size]), np.uint8)
    return rows.reshape(SIDE, 1 + SIDE)[:, 1:]


def _next(here: set[str], console: "Console") -> None:
    from rich.text import Text

    activate = Path(sys.argv[0]).parent / "activate"
    console.print(Text("Next", "bold"), end="\n\n")
    if which("cutaway") is None and activate.is_file():
        console.print(_command(f". {_near(activate)}", "so that cutaway is found"), soft_wrap=True)
    for model, command, what in (
        ("en-de", 'demo "Where is the station?"', "your own sentence"),
        ("en-de", "translate - --model en-de --to de", "line by line, as you type"),
        ("books", 'generate "The ship" --model books --temperature 0.8', ""),
        ("cloze", 'fill "The men who live next door [MASK] very kind." --model cloze', ""),
        ("digits", f"classify {_near(DIGIT)} --model digits", ""),
        ("", "demo --reverse", "train one, in half a minute"),
        ("", "models", "all that is here"),
    ):
        if not model or model in here:
            console.print(_command(f"cutaway {command}", what), soft_wrap=True)


def _near(path: Path) -> Path:
    """As one would type it here."""
    path, here = path.absolute(), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _command(command: str, what: str) -> "Text":
    from rich.text import Text

    return Text.assemble(" " * INDENT, command, (f"{'':{max(2, 46 - len(command))}}{what}", "dim") if what else "")
