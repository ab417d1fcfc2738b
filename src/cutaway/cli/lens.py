"""`cutaway lens`: what a model would say if it stopped after each layer."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.shared.inside import (
    Force,
    Out,
    To,
    Which,
    as_text,
    check_output,
    draw_picture,
    open_model,
    screen,
    waiting,
    write_output,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.cli.shared.console import Console
    from cutaway.inside.question import Question
    from cutaway.inside.residual.logit_lens import Lens
    from cutaway.model.model import Model
    from cutaway.tokens import Tokenizer


class Stream(StrEnum):
    """Whose layers are read."""

    encoder = "encoder"
    decoder = "decoder"


Words = Annotated[list[str] | None, typer.Argument(metavar="[TEXT…]", help="A sentence, or a picture's file.")]
Side = Annotated[Stream | None, typer.Option("--stream", help="A translator's encoder is read by its decoder.")]
Tuned = Annotated[Path | None, typer.Option("--tuned", help="A tuned lens: what --tune wrote.")]
Tune = Annotated[
    Path | None,
    typer.Option(
        "--tune", help="Train a tuned lens on this text (a translator: a sentence a line); --out says where to."
    ),
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Of the training, with --tune.")]
Follow = Annotated[list[str] | None, typer.Option("--follow", help="Follow this word through the layers; repeatable.")]
Target = Annotated[str | None, typer.Option("--target", help="A translator is told this translation, not its own.")]
Top = Annotated[int, typer.Option("--top", min=1, help="Words of each layer in the data.")]


def lens(
    model: Which,
    text: Words = None,
    follow: Follow = None,
    stream: Side = None,
    tuned: Tuned = None,
    tune: Tune = None,
    steps: Steps = 250,
    to: To = None,
    target: Target = None,
    top: Top = 5,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What every layer says at every position: the logit lens, or a tuned one.

    `--tune text.txt --out lens.safetensors` trains a lens; `--tuned lens.safetensors` looks through it.
    """
    if tune is not None:
        if text:
            raise InputError("--tune trains a lens: look through it with --tuned, in a second call")
        looking = {"--follow": follow, "--stream": stream, "--tuned": tuned, "--target": target}
        for option in (name for name, value in looking.items() if value):
            raise InputError(f"{option} is for looking through a lens, and --tune trains one: leave one of them out")
        from cutaway.cli.lens_tune import tune_lens

        tune_lens(model, tune, out, steps, to, as_json, force)
        return
    if not text:
        raise InputError("a text is missing: write a sentence after the model, or train a lens with --tune")
    check_output(out, force=force)
    loaded, tokenizer = open_model(model, blocks=True)

    import torch

    from cutaway.inside.answer_tokens import one_token
    from cutaway.inside.residual.logit_lens import logit_lens
    from cutaway.inside.residual.tuned_lens import TunedLens
    from cutaway.pictures import visible_text
    from cutaway.pictures.pages import page_of
    from cutaway.pictures.to_picture import to_picture

    asked = asked_about(loaded, tokenizer, model, " ".join(text), to, target)
    chosen = [one_token(tokenizer, word, "--follow") for word in follow or []] if tokenizer is not None else []
    if follow and (tokenizer is None or _labels(loaded) is not None):
        raise InputError("--follow follows words, and this model says labels: leave it out")
    through = None if tuned is None else TunedLens.load(tuned, loaded)
    with waiting("reading the layers"):
        side = None if stream is None else stream.value
        found = logit_lens(loaded, *asked.inputs, stream=side, top=top, tokens=chosen, tuned=through, **asked.more)  # type: ignore[arg-type]
    ids = asked.inputs[-1][0] if tokenizer is not None else torch.zeros(0, dtype=torch.long)
    data = {"model": str(model), "text": " ".join(text), **_names(found, tokenizer, loaded, ids), **found.to_dict()}
    if as_json:
        print(as_text(data), end="")
    title = "Tuned lens" if tuned is not None else "Logit lens"
    more: dict[str, Any] = {"labels": _labels(loaded), "title": f"{title}: what each layer would say"}
    picture = to_picture(found, tokenizer, ids, **more)
    if out is not None:
        words = [
            to_picture(found, tokenizer, ids, follow=number, title=f"How likely «{visible_text(word).strip()}» is")
            for number, word in enumerate(follow or [])
        ]
        title = Path(text[0]).name if loaded.config.family == "vit" else " ".join(text)
        write_output(out, picture, data, page_of(title, f"{model.name}, read after each layer", [picture, *words]))
    elif not as_json:
        console = screen()
        draw_picture(console, picture)
        _followed(console, found, follow or [], tokenizer, ids)


def asked_about(
    loaded: "Model", tokenizer: "Tokenizer | None", path: Path, text: str, to: str | None, target: str | None
) -> "Question":
    from cutaway.cli.shared.models import as_trained, tokenizer_for_text
    from cutaway.inside.questions import question_of
    from cutaway.model.model import EncoderDecoderModel

    if target is not None and not isinstance(loaded, EncoderDecoderModel):
        raise InputError("--target is what a translator has written so far, and this model does not translate")
    pixels: dict[str, Any] = {}
    if loaded.config.family == "vit":
        from cutaway.evaluation.examples import picture_numbers

        pixels = picture_numbers(path)
    else:
        tokenizer = tokenizer_for_text(tokenizer, path)
    _, asked = question_of(loaded, tokenizer, text, target=target, to=to, as_trained=as_trained(path), **pixels)
    return asked


def _labels(model: "Model") -> list[str] | None:
    """What a classifier's scores are called; None where they are those of tokens."""
    from cutaway.inside.answer_tokens import LABELS, label_names

    return label_names(model) if model.config.task in LABELS else None


def _names(found: "Lens", tokenizer: "Tokenizer | None", model: "Model", ids: Any) -> dict[str, Any]:
    """Texts for the numbers of the data."""
    from cutaway.inside.attribution.result import token_names
    from cutaway.pictures.to_picture import layer_names

    labels = _labels(model)
    if labels is not None:
        texts = {id: labels[id] for id in found.top_tokens.unique().tolist()}
    else:
        assert tokenizer is not None
        known = (id for id in found.top_tokens.unique().tolist() if id < tokenizer.vocab_size)
        texts = {id: token_names(tokenizer, [id])[0] for id in known}
    read = list(token_names(tokenizer, ids.tolist())) if tokenizer is not None else []
    return {
        "layer_names": list(layer_names(found.layers)),
        "position_texts": read,
        "texts": {str(id): text for id, text in texts.items()},
    }


def _followed(console: "Console", found: "Lens", words: list[str], tokenizer: "Tokenizer | None", ids: Any) -> None:
    """At the last position: how likely each word is after every layer, and how many are likelier."""
    from rich.text import Text

    from cutaway.cli.shared.tables import chance, grid
    from cutaway.pictures import visible_text
    from cutaway.pictures.to_picture import layer_names

    for number, word in enumerate(words):
        console.print()
        name = visible_text(word).strip()
        console.print(Text.assemble((name, "bold"), ("  at the last position: rank, probability", "dim")))
        table = grid()
        for layer, name in reversed(list(enumerate(layer_names(found.layers)))):
            rank = int(found.token_rank[layer, 0, -1, number]) + 1
            probability = float(found.token_probability[layer, 0, -1, number])
            table.add_row(Text(f"  {name}"), Text(f"{rank:,}.".rjust(7)), *chance(probability, console))
        console.print(table)
