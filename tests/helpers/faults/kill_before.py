"""Kills before each call that reaches the disk, in forks of this process."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from typing import Any

DISK = ("open", "write", "rename", "replace", "unlink", "remove", "rmdir", "mkdir", "chmod", "link", "ftruncate")
RENAMES = ("rename", "replace", "unlink", "rmdir", "link")
OURS = ("exchange",)  # goes through ctypes, which no profiler sees


def kill_before(work: Callable[[], Any], number: int, calls: Collection[str] = DISK) -> bool:
    """Does the work in a fork, which dies before its call of that number; whether it came so far."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        assert status in (0, -signal.SIGKILL), f"exit code {status}: see above"
        return status != 0
    status, made = 1, 0

    def see(frame: Any, event: str, function: Any) -> None:
        nonlocal made
        if (event == "c_call" and function.__name__ in calls) or (event == "call" and frame.f_code.co_name in OURS):
            if made == number:
                os.kill(os.getpid(), signal.SIGKILL)
            made += 1

    try:
        signal.alarm(120)
        sys.setprofile(see)
        work()
        sys.setprofile(None)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
