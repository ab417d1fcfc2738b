"""One look of attention, with the numbers of `as_attention`; apart from it, so that chains do without torch."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from cutaway.before.markov.as_attention import SHARP
from cutaway.model.attention import attention, scores_of


class LookUp(NamedTuple):
    """One attention step: `words` are the earlier words that are attended to, `vocab` those of the chain."""

    words: tuple[str, ...]
    query: Float[Tensor, " vocab"]
    key: Float[Tensor, "word vocab"]
    value: Float[Tensor, "word vocab"]

    def mask(self) -> Float[Tensor, " word"]:
        """Q·Kᵀ."""
        return scores_of(self.query[None, None, None], self.key[None, None], scale=1.0)[0, 0, 0]

    def votes(self) -> Float[Tensor, " vocab"]:
        """Q·Kᵀ·V: zeros if the mask keeps nothing."""
        return self.mask() @ self.value

    def attention(self, scale: float = SHARP) -> Float[Tensor, " vocab"]:
        """softmax(scale · Q·Kᵀ)·V: the mean of the rows that are kept, or of all if the mask keeps nothing."""
        query, key, value = self.query[None, None, None], self.key[None, None], self.value[None, None]
        return attention(query, key, value, scale=scale)[0, 0, 0]
