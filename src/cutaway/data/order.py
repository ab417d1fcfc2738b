"""Which example comes when: an order that depends only on the seed and on the step.

Nothing is drawn and kept. The place of every example is computed when it is asked for, so that a run that was killed
goes on with the very batch that was next, at once, and any number of workers and machines see the same order.

A Feistel network (Luby & Rackoff 1988) permutes 0 … 2ᵇ−1 without a table; numbers that land at n or beyond are sent
through it again until they land below, which makes it a permutation of 0 … n−1 (Black & Rogaway 2002).
"""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

ROUNDS = 6
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def shuffled(places: Indices, n: int, *key: int) -> Indices:
    """What stands at these places of 0 … n−1 in the order that the key names; every key has an order of its own."""
    if n < 1 or (len(places) and not 0 <= places.min() <= places.max() < n):
        raise IndexError(f"places outside 0 … {n - 1}")
    half = np.uint64(max(1, (n - 1).bit_length() + 1 >> 1))
    secrets = [_scramble(np.uint64(round_), *key) for round_ in range(ROUNDS)]
    result = places.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        result[outside] = _network(result[outside], half, secrets)
        outside = result >= n
    return result.astype(np.int64)


def number(n: int, *key: int) -> int:
    """A number of 0 … n−1 that the key names."""
    return int(_scramble(np.uint64(0), *key) % np.uint64(n))


def generator(*key: int) -> np.random.Generator:
    """Random numbers that depend on the key alone: the seed, the purpose, the step."""
    return np.random.default_rng(key)


def _network(x: NDArray[np.uint64], half: np.uint64, secrets: list[np.uint64]) -> NDArray[np.uint64]:
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & low
    for secret in secrets:
        left, right = right, left ^ (_splitmix(right ^ secret) & low)
    return left << half | right


def _scramble(x: np.uint64, *key: int) -> np.uint64:
    for part in key:
        x = _splitmix(x ^ np.uint64(part & 0xFFFFFFFFFFFFFFFF))
    return x


def _splitmix(x):  # type: ignore[no-untyped-def]  # one number or an array of them
    """SplitMix64 (Steele, Lea & Flood 2014): every bit of the input changes half of the output's."""
    with np.errstate(over="ignore"):
        x = x + _ODD
        x = (x ^ x >> np.uint64(30)) * _MIX[0]
        x = (x ^ x >> np.uint64(27)) * _MIX[1]
        return x ^ x >> np.uint64(31)
