"""Signals that ask a run to stop: it ends after the present step, with a checkpoint."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Interruption:
    """True after SIGTERM or Ctrl-C. A second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 130 if self.signal == signal.SIGINT else 0

    @contextmanager
    def listen(self, note: Callable[[str], None] = lambda text: None) -> Iterator["Interruption"]:
        """Handles the signals while the block lasts; `note` is told that one came."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self.signal == signal.SIGINT == number:
                raise KeyboardInterrupt
            self.signal = number
            with suppress(RuntimeError):  # the signal interrupted somebody who was writing to the same stream
                note("saving after this step …")

        try:
            before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not in the main thread, where no signals arrive
            yield self
            return
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
