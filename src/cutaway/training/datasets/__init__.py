"""From a recipe to its examples: files are read, a tokenizer is chosen or trained, and batches can be made."""

from cutaway.data.cache import notes_to
from cutaway.errors import ConfigError
from cutaway.tokens import Tokenizer
from cutaway.training.datasets.training_data import Note, TrainingData
from cutaway.training.recipe import Recipe
from cutaway.training.tasks import data_kind


def prepare(recipe: Recipe, start: Tokenizer | None, note: Note = lambda text: None) -> TrainingData:
    """The examples of a recipe, its tokenizer and its objective; `start` is the starting model's tokenizer."""
    if not recipe.data.train:
        raise ConfigError("[data] has no `train` files")
    with notes_to(note):
        match data_kind(recipe):
            case "text":
                from cutaway.training.datasets.texts import TextFiles

                dataset = TextFiles(recipe, note).prepare(start)
            case "table":
                from cutaway.training.datasets.tables import Tables

                dataset = Tables(recipe, note).prepare(start)
            case _:
                from cutaway.training.datasets.images import ImageFiles

                dataset = ImageFiles(recipe, note).prepare()
    _check_validation(recipe, dataset)
    dataset.notes += dataset.length_notes(recipe.data.seq_len)
    return dataset


def _check_validation(recipe: Recipe, dataset: TrainingData) -> None:
    """Refuses a metric that is not measured, and patience without validation examples."""
    known = dataset.metrics()
    if dataset.valid is not None and recipe.evaluate.metric not in known:
        raise ConfigError(
            f"evaluate.metric={recipe.evaluate.metric!r} is not measured for objective {recipe.objective.kind!r}; "
            f"measured are {', '.join(known)}"
        )
    if dataset.valid is None and recipe.evaluate.patience:
        raise ConfigError(
            f"evaluate.patience={recipe.evaluate.patience} needs validation examples: set data.valid, valid_share or "
            f"valid_last; or set it to 0"
        )
