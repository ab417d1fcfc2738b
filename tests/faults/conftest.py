"""One starter of runs, one undisturbed run and one half of it for all tests of a worker."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.faults.killed_runs import Reference, Starter, small, undisturbed, write_text


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and with a cache beside it that forks and this process share."""
    folder = tmp_path_factory.mktemp("killing")
    write_text(folder / "text.txt")
    return folder


@pytest.fixture(scope="session")
def starter(place: Path) -> Iterator[Starter]:
    starter = Starter(place / "cache")
    yield starter
    starter.close()


@pytest.fixture(scope="session")
def reference(place: Path, starter: Starter) -> Reference:
    return undisturbed(starter, place, small(place))


@pytest.fixture(scope="session")
def stopped(place: Path, starter: Starter, reference: Reference) -> Path:
    """A run that was killed when it began to save its step 30: it holds two checkpoints or more."""
    out = place / "stopped"
    saves = [int(call) for call in _steps_of_saves(reference)]
    ended = starter.train(reference.recipe, out, kill={"save": saves.index(30), "call": 0})
    assert ended.killed
    return out


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(stopped, tmp_path / "half"))


@pytest.fixture(autouse=True)
def _same_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "place" in request.fixturenames:
        monkeypatch.setenv("CUTAWAY_CACHE", str(request.getfixturevalue("place") / "cache"))


def _steps_of_saves(reference: Reference) -> Iterator[int]:
    from cutaway.training.run_log import read_log

    for event in read_log(reference.out / "run" / "log.jsonl"):
        if event["event"] == "checkpoint":
            yield event["step"]
