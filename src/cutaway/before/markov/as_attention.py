"""The bridge: the masked vote, written as attention.

    query    the most recent word, one-hot                                      Q
    key      of each earlier word: 1 at every most recent word that keeps it    K: all masks, stacked
    value    of each earlier word: the row of (earlier word, most recent word)  V

    Q·Kᵀ is the mask of the most recent word, and Q·Kᵀ·V its votes. softmax(c·Q·Kᵀ)·V, with a large c, is their mean.

One thing is not yet as in a Transformer: here a value depends on the most recent word, too. There attention brings
only the earlier word, and the feed-forward makes the feature (earlier, recent) of the two.
(`tests/golden/test_battery.py` sets the weights of our own parts by hand to do exactly that.)
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutaway.before.markov.skips import MaskedSkips, Skips
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.before.markov.look_up import LookUp

SHARP = 1000.0  # softmax of 1000 against 0 is 1 against 0, to the last bit


def as_attention(chain: MaskedSkips, past: Sequence[str]) -> "LookUp":
    """What `chain.votes(past)` computes, as query, keys and values."""
    import torch

    from cutaway.before.markov.look_up import LookUp

    active = Skips.features(chain, past)
    if not active:
        raise InputError(f"the {chain} needs {chain.order} words to look at: {len(past)} given")
    words = tuple(earlier for earlier, _ in active)
    query = torch.tensor([float(word == past[-1]) for word in chain.words], dtype=torch.float64)
    key = torch.from_numpy(chain.mask_matrix(earlier=words).values).T
    return LookUp(words, query, key, torch.from_numpy(chain.matrix(active).values))
