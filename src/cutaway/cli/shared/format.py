"""Numbers as people read them."""

from cutaway.pictures.terminal_text import minus

__all__ = ["human", "minus"]


def human(n: int | float, unit: str) -> str:
    """Three digits and a power of 1000: 124 MB, 1.50 GFLOP."""
    power = 0
    while n >= 999.5 and power < 5:
        n, power = n / 1000, power + 1
    digits = 0 if power == 0 or n >= 99.95 else 1 if n >= 9.995 else 2
    return f"{n:.{digits}f} {' kMGTP'[power].strip()}{unit}"
