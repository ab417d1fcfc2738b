"""`cutaway lens`: what a model would say if it stopped after each layer."""

from pathlib import Path
from typing import Annotated

import typer

from cutaway.cli.shared.inside import (
    Force,
    Out,
    Which,
    check_output,
    open_model,
    options_of_folder,
    print_report,
    waiting,
)
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError
from cutaway.inside.reports.options import LensOptions

Words = Annotated[list[str] | None, typer.Argument(metavar="[TEXT…]", help="A sentence, or an image file.")]
Tune = Annotated[
    Path | None,
    typer.Option("--tune", help="Train a tuned lens on this text (a translator: a sentence a line); --out saves it."),
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Number of training steps, with --tune.")]


def lens(
    model: Which,
    text: Words = None,
    *,
    options: LensOptions,
    tune: Tune = None,
    steps: Steps = 250,
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
        for name in ("follow", "stream", "tuned", "target"):
            if getattr(options, name):
                raise InputError(
                    f"--{name} is for looking through a lens, and --tune trains one: leave one of them out"
                )
        from cutaway.cli.lens_tune import tune_lens

        tune_lens(model, tune, out, steps, options.to, as_json, force)
        return
    if not text:
        raise InputError("a text is missing: write a sentence after the model, or train a lens with --tune")
    check_output(out, force=force)
    loaded, tokenizer = open_model(model, blocks=True)

    from cutaway.cli.shared.models import tokenizer_for_text
    from cutaway.inside.model_kinds import kind_of
    from cutaway.inside.reports.lens_report import lens

    if not kind_of(loaded).reads_images:
        tokenizer = tokenizer_for_text(tokenizer, model)
    options = options_of_folder(options, model, loaded)
    with waiting("reading the layers"):
        found = lens(loaded, tokenizer, " ".join(text), name=str(model), options=options)
    print_report(found, out, as_json=as_json)
