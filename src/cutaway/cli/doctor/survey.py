"""Runs every probe. A probe yields rows; those that need torch import it themselves."""

from collections.abc import Callable, Iterator

from cutaway.cli.doctor import fast_paths, hardware, software, speed
from cutaway.cli.doctor.row import Row, first_line

Probe = Callable[[], Iterator[Row]]

GROUPS: dict[str, list[Probe]] = {
    "software": [software.python, software.torch_, software.libraries, software.extras],
    "machine": [hardware.cpu, hardware.instructions, hardware.memory, hardware.disk, hardware.gpu],
    "speed": [speed.products, speed.copy, speed.gpu],
    "fast paths": [fast_paths.attention, fast_paths.kernels, fast_paths.compile_],
}
TAKES_SECONDS: list[Probe] = [*GROUPS["speed"], fast_paths.compile_]


def survey(quick: bool, announce: Callable[[str], None]) -> Iterator[tuple[str, Row]]:
    """(group, row) for all that is found; stops after a group in which something essential is broken."""
    for group, probes in GROUPS.items():
        broken = False
        for probe in probes:
            if quick and probe in TAKES_SECONDS:
                continue
            announce(_name(probe))
            for row in _ask(probe):
                broken |= row.broken
                yield group, row
        if broken:
            return


def _ask(probe: Probe) -> Iterator[Row]:
    """A probe that fails becomes a row, so that the others still run."""
    try:
        yield from probe()
    except Exception as error:
        yield Row(_name(probe), "missing", f"{type(error).__name__}: {first_line(error)}")


def _name(probe: Probe) -> str:
    return probe.__name__.rstrip("_")
