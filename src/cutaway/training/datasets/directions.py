"""The directions of a translator: which columns are sources and targets, and the tags of several languages."""

from cutaway.errors import ConfigError
from cutaway.tokens import Tokenizer
from cutaway.training.recipe import Recipe


def directions_of(recipe: Recipe) -> list[tuple[str, str]]:
    """(en, de) for "en-de"; a target may be pt-BR."""
    ways = [way.partition("-") for way in recipe.data.directions]
    for source, _, target in ways:
        if not source or not target:
            raise ConfigError(f"data.directions={list(recipe.data.directions)}: write each as en-de, source and target")
    return [(source, target) for source, _, target in ways]


def source_columns(recipe: Recipe, tokenizer: Tokenizer) -> list[tuple[str, str, int | None]]:
    """Source and target of each direction, and the tag in front of its sources."""
    if ways := directions_of(recipe):
        return [(source, target, tokenizer.tag_id(target)) for source, target in ways]
    d = recipe.data
    source, target = d.header[:2] if d.format == "parallel" and d.header else (d.source, d.target)
    return [(source, target, None)]
