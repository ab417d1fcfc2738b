"""What `generate`, `translate` and the like are given first: a model and a tokenizer, not where they lie."""

from pathlib import Path

from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer


def check_given(model: object, tokenizer: object) -> None:
    """Refuses a folder, or two things in the wrong order, with the line that would have been right."""
    folder = next((repr(str(one)) for one in (model, tokenizer) if isinstance(one, str | Path)), '"folder"')
    for name, one, kind in (("model", model, Model), ("tokenizer", tokenizer, Tokenizer)):
        if not isinstance(one, kind):
            raise InputError(
                f"the {name} is a {type(one).__name__}: load both first, "
                f"model, tokenizer = cutaway.load({folder}), cutaway.load_tokenizer({folder})"
            )
