"""Standing guard: signals end a run after a step, a second Ctrl-C at once, and one trainer holds a folder."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cutaway.errors import CheckpointError
from cutaway.training.interruption import Interruption
from cutaway.training.run_folder import RunFolder

BOTH = (signal.SIGTERM, signal.SIGINT)


def stops(number: signal.Signals) -> bool:
    """Whether this signal stops at once whatever is being done."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize(("first", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_is_noted_told_and_waited_for_and_a_second_ctrl_c_is_not(first: signal.Signals, code: int) -> None:
    before = [signal.getsignal(number) for number in BOTH]
    interruption, said = Interruption(), []  # type: ignore[var-annotated]
    with interruption.listen(said.append) as heard:
        assert heard is interruption
        assert (bool(interruption), interruption.exit_code) == (False, 0)
        assert not stops(first)
        assert (bool(interruption), interruption.exit_code) == (True, code)
        assert not stops(signal.SIGTERM)  # however often
        assert not stops(signal.SIGINT)  # after SIGTERM it is the first one
        assert interruption.exit_code == 130
        assert said == ["saving after this step …"] * 3
        assert stops(signal.SIGINT)
    assert [signal.getsignal(number) for number in BOTH] == before
    assert len(said) == 3


def test_in_a_thread_that_hears_no_signals_a_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise ValueError("signal only works in main thread of the main interpreter")

    monkeypatch.setattr(signal, "signal", refuse)
    with Interruption().listen() as interruption:
        assert not interruption


def test_a_folder_has_one_trainer_and_the_next_when_it_has_gone(tmp_path: Path) -> None:
    for _ in range(2):
        with RunFolder(tmp_path).lock():
            refused = rf"in use by another trainer \(process {os.getpid()}\): choose another --out"
            with pytest.raises(CheckpointError, match=refused), RunFolder(tmp_path).lock():
                pass
            assert (tmp_path / "run" / "lock").read_text() == str(os.getpid())
    (tmp_path / "run" / "lock").write_text("12345678901234567890")  # a longer number, of one that was killed
    with RunFolder(tmp_path).lock():
        assert (tmp_path / "run" / "lock").read_text() == str(os.getpid())
