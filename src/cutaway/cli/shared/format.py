"""Numbers for people."""


def minus(text: str) -> str:
    """With the minus sign of our pictures, which is as wide as +."""
    return text.replace("-", "−")


def human(n: int | float, unit: str) -> str:
    """Three digits and a unit: 124 MB, 1.50 GFLOP."""
    power = 0
    while n >= 999.5 and power < 5:
        n, power = n / 1000, power + 1
    digits = 0 if power == 0 or n >= 99.95 else 1 if n >= 9.995 else 2
    return f"{n:.{digits}f} {' kMGTP'[power].strip()}{unit}"
