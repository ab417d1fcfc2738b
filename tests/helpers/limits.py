"""A cage for hostile input: code that wants too much time or memory fails instead of taking the machine."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limits(seconds: float = 60, megabytes: int = 1024) -> Iterator[None]:
    """Within, this process may use that much more memory and time; beyond, `MemoryError` or `TimeoutError`."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), hard))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, before)
