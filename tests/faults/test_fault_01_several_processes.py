"""Fault 1 with two processes, as torchrun starts them: killed and resumed, they end bit-identical, dropout and all."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.faults.killed_runs import (
    Ended,
    Starter,
    Values,
    checkpoint_folders,
    fingerprints,
    same_steps,
    small,
    steps_in,
)


@pytest.fixture(scope="module")
def starters(starter: Starter, place: Path) -> Iterator[tuple[Starter, Starter]]:
    second = Starter(place / "cache")
    yield starter, second
    second.close()


def together(starters: tuple[Starter, Starter], recipe: Values, out: Path, *, kill: Any = None, **more: Any) -> Ended:
    """One start of two processes; what the first told. `kill` is for the first, and the second ends by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for rank, starter in enumerate(starters):
        starter.begin(
            "train", recipe=recipe, out=out, environment={**common, "RANK": str(rank)}, record=record_of(out, rank),
            **{"resume": False, **more}, **({"kill": kill} if rank == 0 else {}),
        )  # fmt: skip
    first, second = (starter.end() for starter in starters)
    assert (first.exit, second.exit == 0) == (0, not first.killed), (first, second)
    return first


def record_of(out: Path, rank: int) -> Path:
    return out.with_name(f"{out.name}-{rank}.jsonl")


@pytest.mark.parametrize("after", [2, 17, 31])
def test_fault_01_two_processes_that_were_killed_end_bit_identical(
    after: int, starters: tuple[Starter, Starter], place: Path, tmp_path: Path
):
    """After step 2 there is no checkpoint yet."""
    recipe, reference, out = small(place, train_rows=6), place / "two", tmp_path / "out"
    if not reference.exists():
        together(starters, recipe, reference)
    assert together(starters, recipe, out, kill={"after": after, "hold": True}).killed
    assert bool(checkpoint_folders(out)) == (after > 5)
    together(starters, recipe, out, resume=True)
    assert fingerprints(out) == fingerprints(reference)
    for rank in range(2):
        same_steps(record_of(out, rank), record_of(reference, rank))
    seen = [{step["batch"] for step in steps_in(record_of(out, rank))} for rank in range(2)]
    assert not seen[0] & seen[1], "both took the same parts"


def test_fault_09_another_number_of_processes_is_refused(starter: Starter, starters: Any, place: Path, tmp_path: Path):
    recipe, out = small(place), tmp_path / "out"
    assert together(starters, recipe, out, kill={"after": 12, "hold": True}).killed
    refused = starter.train(recipe, out, resume=True)
    assert refused.error.startswith(f"ConfigError: this is another run than the one in {out}: processes: 2 → 1.")
