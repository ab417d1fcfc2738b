"""`cutaway patch`: which layer, position or head carries the difference between two texts."""

from dataclasses import replace
from typing import Annotated

import typer

from cutaway.cli.shared.inside import (
    Force,
    Layers,
    Out,
    Which,
    check_output,
    numbers_in_option,
    open_model,
    options_of_folder,
    print_report,
    waiting,
    warn,
)
from cutaway.cli.shared.options import Json
from cutaway.inside.reports.options import PatchOptions

Clean = Annotated[str, typer.Argument(metavar="CLEAN", help="A text that the model answers well; or an image file.")]
Corrupted = Annotated[
    str | None, typer.Argument(metavar="[CORRUPTED]", help="The same with another answer, and as many tokens.")
]


def patch(
    model: Which,
    clean: Clean,
    corrupted: Corrupted = None,
    *,
    options: PatchOptions,
    layers: Layers = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Which places carry the answer: each is patched from CLEAN into CORRUPTED, or with --ablate taken away.

    What is measured is the logit of the right answer − that of the wrong one. Patched, 1 is as CLEAN, 0 as CORRUPTED.
    """
    check_output(out, force=force)
    options.check_second_text(corrupted is not None)
    loaded, tokenizer = open_model(model, blocks=True)

    from cutaway.cli.shared.models import tokenizer_for_text
    from cutaway.inside.model_kinds import kind_of
    from cutaway.inside.reports.patch_report import patch

    if not kind_of(loaded).reads_images:
        tokenizer = tokenizer_for_text(tokenizer, model)
    options = replace(options_of_folder(options, model, loaded), layers=numbers_in_option(layers))
    with waiting("patching") as progress:
        found = patch(
            loaded, tokenizer, clean, corrupted, progress=progress, warn=warn, name=str(model), options=options
        )
    print_report(found, out, as_json=as_json)
