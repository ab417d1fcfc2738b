"""Fault 1, compiled: on the CPU with deterministic algorithms, a killed run that is resumed ends bit-identical."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.faults.killed_runs import (
    STEPS,
    Reference,
    Starter,
    fingerprints,
    kill_at_random,
    ragged,
    same_steps,
    small,
    steps_in,
    undisturbed,
    was_in_the_middle,
    write_text,
)


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("compiled") / "cache")
    yield starter
    starter.close()


@pytest.fixture(scope="module")
def reference(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    place = tmp_path_factory.mktemp("compiled")
    write_text(place / "text.txt")
    changes = {"train_compile": "default", "train_deterministic": True, "train_accumulate": 1, "model_n_layers": 1}
    return undisturbed(starter, place, small(place, **changes))


def test_fault_01_what_is_compiled_differs_from_what_is_not(starter: Starter, reference: Reference, tmp_path: Path):
    """Otherwise these tests would show nothing that those of the uncompiled run do not."""
    eager = {**reference.recipe, "train": {**reference.recipe["train"], "compile": "no"}}
    assert starter.train(eager, tmp_path / "out").exit == 0
    assert fingerprints(tmp_path / "out")["weights"] != reference.prints["weights"]


def test_fault_01_compiled_and_killed_at_random_instants_it_ends_bit_identical(
    starter: Starter, reference: Reference, tmp_path: Path
):
    out, record = kill_at_random(starter, reference.recipe, tmp_path, "compiled", first=6, last=STEPS - 10, left=5)
    # once more, not far from there: steps are recorded from 0 and told from 1, and the last may be in a checkpoint
    kill = {"after": steps_in(record)[-1]["step"] + 2, "hold": True}
    ended = starter.train(reference.recipe, out, resume=True, record=record, kill=kill)
    assert was_in_the_middle(ended, out)
    starter.to_the_end(reference.recipe, out, record=record)
    assert fingerprints(out) == reference.prints
    same_steps(record, reference.record)


def test_fault_01_compiled_block_by_block_it_ends_bit_identical_whichever_shape_comes_first(
    starter: Starter, tmp_path: Path
):
    """Code that was compiled for any shape depends on the first one, and a resumed run begins with another."""
    recipe = ragged(tmp_path, train_compile="blocks", train_deterministic=True, train_accumulate=1)
    reference = undisturbed(starter, tmp_path, recipe)
    shapes = [step["shapes"] for step in steps_in(reference.record)]
    saved = next(step for step in (5, 10, 20, 25) if shapes[step] != shapes[0])
    out, record = tmp_path / "out", tmp_path / "steps.jsonl"
    assert starter.train(recipe, out, record=record, kill={"after": saved + 1, "hold": True}).killed
    starter.to_the_end(recipe, out, record=record)
    assert steps_in(record)[saved + 1]["step"] == saved, "it went on with another shape"
    assert fingerprints(out) == reference.prints
    same_steps(record, reference.record)
