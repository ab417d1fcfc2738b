"""A stand-in until the parts are merged."""

from collections.abc import Sequence


def detect(text: str, among: Sequence[str]) -> list[tuple[str, float]]:
    return [(one, 50.0) for one in among]
