"""The end of a run: the final weights become a model folder, with the recipe and a model card."""

from pathlib import Path
from typing import Any

from cutaway.checkpoints.model_folder import save_folder
from cutaway.checkpoints.output_folder import MODEL, WEIGHTS
from cutaway.errors import CheckpointError
from cutaway.folders import replacing_folder
from cutaway.tokens import Tokenizer
from cutaway.training.average import average_of, put_weights
from cutaway.training.checkpoint import Checkpoint, read_checkpoint, regular
from cutaway.training.datasets.training_data import Note
from cutaway.training.loop import Run
from cutaway.training.model_card import model_card
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_file import to_toml


def write_model_folder(
    out: Path, run: Run, recipe: Recipe, tokenizer: Tokenizer | None, facts: dict[str, Any], note: Note
) -> None:
    """config.json, model.safetensors, tokenizer.json; recipe.toml, resolved; README.md, the card; all at once.

    If there is no model yet, a README.md or recipe.toml in the folder is the user's, and is kept.
    """
    if recipe.train.lora_rank:
        from cutaway.training.lora import merge_lora

        merge_lora(run.model)
    model = run.model.eval()
    texts = {"recipe.toml": to_toml(recipe), "README.md": model_card(recipe, model, facts)}
    with replacing_folder(out, MODEL, stale=WEIGHTS) as fresh:
        save_folder(model, fresh, tokenizer)
        for name, text in texts.items():
            if (out / name).exists() and not (out / MODEL.seal).exists():
                note(f"{out / name} existed before the model and is kept; ours is not written")
            else:
                (fresh / name).write_text(text, encoding="utf-8")


def choose_weights(run: Run, recipe: Recipe, folder: Path, note: Note) -> tuple[str, bool]:
    """Loads the final weights from the checkpoints in `folder`.

    Returns a sentence that says which they are, and whether the scores of the run are theirs.
    """
    if recipe.train.average:
        paths = regular(folder, run.step, recipe.checkpoint.every)[-recipe.train.average :]
        found = [checkpoint for path in paths if (checkpoint := _if_whole(path, note)) is not None]
        average_of([checkpoint.tensors("weights") for checkpoint in found], run.model)
        return f"The weights are the mean of the last {len(found)} checkpoints.", False
    name, which = ("weights", "the weights") if run.average is None else ("average", "a moving average of the weights")
    if recipe.evaluate.keep_best and run.best_step is not None:
        best = _if_whole(folder / f"step-{run.best_step:08d}", note)
        if best is not None:
            source = best.tensors(name)
            for parameter_name, parameter in run.model.named_parameters():
                source.copy_into(parameter_name, parameter.data)
            return f"These are {which} after step {run.best_step:,}, the best by {recipe.evaluate.metric}.", True
    if run.average is not None:
        put_weights(run.model, run.average.weights)
    return f"These are {which} after step {run.step:,}.", not recipe.evaluate.keep_best


def _if_whole(path: Path, note: Note) -> Checkpoint | None:
    """A checkpoint of an earlier step; None, with a note, if it is damaged."""
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        note(f"{error}; the model is made without it")
        return None
