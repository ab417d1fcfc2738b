"""The special tokens that tasks need of a tokenizer."""

from cutaway.errors import ConfigError
from cutaway.objectives.masked import Hiding
from cutaway.tokens import Tokenizer
from cutaway.training.recipe import Recipe


def required_id(role: str, id: int | None) -> int:
    if id is None:
        raise ConfigError(f"this objective needs a tokenizer with a token that {role}, and this one has none")
    return id


def hiding(recipe: Recipe, tokenizer: Tokenizer) -> Hiding:
    """Which tokens are masked: whole words, unless the recipe says otherwise."""
    return Hiding(
        mask_id=required_id("hides a word", tokenizer.mask_id),
        vocab_size=tokenizer.vocab_size,
        special_ids=tuple(tokenizer.special_ids().values()),
        continues=tuple(tokenizer.continues_word()) if recipe.objective.whole_words else None,
        share=recipe.objective.mask_share,
    )
