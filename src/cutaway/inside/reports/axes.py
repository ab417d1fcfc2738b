"""The names along the axes of a picture: tokens as text, layers by their place in the stack."""

from collections.abc import Sequence

from torch import Tensor

from cutaway.inside.attribution.result import token_names
from cutaway.tokens import Tokenizer


def token_words(tokenizer: Tokenizer | None, ids: Tensor | Sequence[int]) -> tuple[str, ...]:
    """Tokens as the names along an axis, without the space before a word.

    >>> token_words(tokenizer, ids)
    """
    chosen = ids.flatten().tolist() if isinstance(ids, Tensor) else list(ids)
    return tuple(map(str, chosen)) if tokenizer is None else strip_spaces(token_names(tokenizer, chosen))


def strip_spaces(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() or name for name in names)


def layer_names(taps: Sequence[str]) -> tuple[str, ...]:
    """What enters the first block, and the stream after each block, counted from 0 as everywhere."""
    return tuple("embedding" if tap.endswith("residual_before") else f"after block {tap.split('.')[1]}" for tap in taps)


def position_names(
    tokenizer: Tokenizer | None, ids: Tensor | Sequence[int], positions: Sequence[int] | None, values: Tensor
) -> Sequence[str]:
    words = token_words(tokenizer, ids)
    if positions is not None and len(words) > max(positions, default=-1):
        words = tuple(words[position] for position in positions)
    return words if len(words) == values.shape[1] else ()
