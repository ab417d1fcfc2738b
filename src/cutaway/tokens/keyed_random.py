"""Random numbers as a function of a key: the same on every machine and in any order."""

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]


def mixed_bits(x: Bits) -> Bits:
    """SplitMix64 (Steele, Lea & Flood 2014): every bit of the input changes half of the output's."""
    x = x + np.uint64(0x9E3779B97F4A7C15)  # wraps around at 64 bits, as it should
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
