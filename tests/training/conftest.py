"""Tiny models: a second thread would cost more than it helps. What is tokenised is forgotten with the test."""

from pathlib import Path

import pytest
from parity.conftest import _one_thread  # noqa: F401


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _no_measuring_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast it could be is measured anew in each run, with products that take longer than a toy's steps."""
    monkeypatch.setattr("cutaway.training.trainer.peak_flops", lambda device, dtype: 1e12)
