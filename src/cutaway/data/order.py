"""Which example comes when: an order that depends only on the seed and on the step.

No order is drawn and stored. The place of every example is computed when it is needed, so that a run that was killed
continues at once with the batch that was next, and any number of workers and machines see the same order.

A Feistel network (Luby & Rackoff 1988) permutes 0 … 2ᵇ−1 without a table; numbers that land at n or beyond are sent
through it again until they land below, which makes it a permutation of 0 … n−1 (Black & Rogaway 2002).
"""

import numpy as np
from numpy.typing import NDArray

from cutaway.errors import ConfigError
from cutaway.tokens.keyed_random import mixed_bits

Indices = NDArray[np.int64]

# What a key is used for: no two uses may share their numbers.
WINDOW_ORDER, WINDOW_START, BATCH_ORDER, ROW_ORDER, SEGMENTS, HELD_OUT = range(6)

ROUNDS = 6
_ALL = 0xFFFFFFFFFFFFFFFF
_ODD = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def shuffled(places: Indices, n: int, *key: int) -> Indices:
    """The numbers at these places when 0 … n−1 are in the order that belongs to the key."""
    if n < 1 or (len(places) and not 0 <= places.min() <= places.max() < n):
        raise IndexError(f"places outside 0 … {n - 1}")
    half = np.uint64(max(1, (n - 1).bit_length() + 1 >> 1))
    secrets = round_keys(*key)
    result = places.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        result[outside] = _network(result[outside], half, secrets)
        outside = result >= n
    return result.astype(np.int64)


def random_number(n: int, *key: int) -> int:
    """The number in 0 … n−1 that belongs to the key."""
    return _scramble(*key) % n


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on the key alone: the seed, the purpose, the step."""
    return np.random.default_rng(_scramble(*key))


def round_keys(*key: int) -> list[np.uint64]:
    """What each round of the network is keyed with: the round comes last, or seeds 0 and 1 would share their rounds."""
    return [np.uint64(_scramble(*key, round_)) for round_ in range(ROUNDS)]


def _network(x: NDArray[np.uint64], half: np.uint64, secrets: list[np.uint64]) -> NDArray[np.uint64]:
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & low
    for secret in secrets:
        left, right = right, left ^ (mixed_bits(right ^ secret) & low)
    return left << half | right


def _scramble(*key: int) -> int:
    """One number from a key; whole numbers of Python's, which are quicker than numpy's when they come one by one."""
    x = len(key)  # so that no key is the beginning of another
    for part in key:
        if not 0 <= part <= _ALL:
            raise ConfigError(f"{part} in the key {key} of an order: a seed is a whole number of 0 … 2⁶⁴ − 1")
        x = (x ^ part) + _ODD & _ALL
        x = (x ^ x >> 30) * _MIX[0] & _ALL
        x = (x ^ x >> 27) * _MIX[1] & _ALL
        x ^= x >> 31
    return x
