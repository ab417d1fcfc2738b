"""A process that imports torch once and has no threads: every run of a test is a fork of it, which begins at once.

A fork can be killed from outside, a random while after a step, or by itself, at a chosen call that reaches the disk.
`killed_runs.Starter` starts it and speaks with it, a line of JSON for each request and each answer.
"""

import ctypes
import dataclasses
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TENSORS = ("weights", "optimizer", "average")
SPOILT = {6: "nan", 7: "inf", 23: "2.0"}  # step → what its loss is multiplied by: three steps that must not count
Event = dict[str, Any]


def serve() -> None:
    """Reads a request a line, forks, follows the child, answers with a line."""
    import torch._dynamo  # every optimizer imports it, which takes seconds
    import torch.utils.flop_counter  # noqa: F401

    import cutaway.training.train  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work(request, writing)
        os.close(writing)
        print(json.dumps(_follow(child, reading, request.get("kill") or {})), flush=True)


def _follow(child: int, reading: int, kill: dict[str, Any]) -> dict[str, Any]:
    """Listens until the child ends; sends it the signal so many seconds after it told of the step."""
    events = []
    with os.fdopen(reading) as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # killed while it spoke
            event = json.loads(line)
            events.append(event)
            if _is_the_one(event, kill):
                time.sleep(kill.get("seconds", 0.0))
                os.kill(child, kill.get("signal", signal.SIGKILL))  # it is ours until we have waited for it
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"signal": max(0, -status), "exit": max(0, status), "events": events}


def _is_the_one(event: Event, kill: dict[str, Any]) -> bool:
    """Whether this is the news to be killed at: of its start (step 0), of a step, or of what `on` says."""
    step = 0 if event["event"] == "start" else event.get("step")
    return "after" in kill and step == kill["after"] and event["event"] in (kill.get("on", "step"), "start")


def _work(request: dict[str, Any], writing: int) -> None:
    """A job in the child; it never returns."""
    code = 70
    signal.alarm(request.get("limit", 0))  # seconds until it counts as hanging, and dies
    try:
        kill = request.get("kill") or {}

        def tell(event: Event) -> None:
            os.write(writing, (json.dumps(event, default=str) + "\n").encode())
            held = kill.get("hold", False) and _is_the_one(event, kill)
            time.sleep(60 if held else request.get("pause", 0.0))

        code = {"train": _train, "save": _save}[request["job"]](request, tell)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _train(request: dict[str, Any], tell: Callable[[Event], None]) -> int:
    from cutaway.errors import CutawayError
    from cutaway.training import train as module
    from cutaway.training.recipe import recipe_from

    out, kill = Path(request["out"]), request.get("kill") or {}
    os.environ |= request.get("environment", {})
    module.Feed.make = _spoilt(module.Feed.make, request.get("spoilt", SPOILT))
    if "record" in request:
        module.take_step = recorded(module.take_step, Path(request["record"]))  # type: ignore[attr-defined]
    calls = Calls((kill["save"], kill["call"]) if "save" in kill else None)
    if "save" in kill or "calls" in request:
        module.write_checkpoint = calls.watched(module.write_checkpoint, begins=True)  # type: ignore[attr-defined]
        module.keep_newest = calls.watched(module.keep_newest)  # type: ignore[attr-defined]
    if "disk" in request:
        _small_disk(out, request["disk"])
    if "largest_file" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"], resource.RLIM_INFINITY))
    try:
        outcome = module.train(recipe_from(request["recipe"]), out, resume=request["resume"], listeners=[tell])
    except CutawayError as error:
        tell({"event": "error", "kind": type(error).__name__, "text": str(error)})
        return 2
    finally:
        if "calls" in request:
            Path(request["calls"]).write_text("".join(json.dumps(save) + "\n" for save in calls.made))
        if "copy" in request:  # off the small disk, which goes when we go
            shutil.copytree(out, request["copy"])
    tell({"event": "outcome", **dataclasses.asdict(outcome)})
    return outcome.exit_code


def _save(request: dict[str, Any], tell: Callable[[Event], None]) -> int:
    """One checkpoint beside an older one, killed at a call; then the older one would be removed."""
    import torch

    from cutaway.training.checkpoint import keep_newest, write_checkpoint

    folder = Path(request["folder"])
    calls = Calls((0, request["call"]))
    numbers = {name: {f"{name}.{i}": torch.full((40, 80), float(i)) for i in range(3)} for name in TENSORS}
    calls.watched(write_checkpoint, begins=True)(folder, 2, numbers, {"tokens": 2})
    calls.watched(keep_newest)(folder, 1, 2)
    tell({"event": "calls", "made": calls.made[0]})
    return 0


def _spoilt(make: Callable[..., Any], spoilt: dict[Any, str]) -> Callable[..., Any]:
    """Batches whose loss is multiplied at some steps: NaN, infinite, or a spike."""
    factors = {int(step): float(factor) for step, factor in spoilt.items()}

    def made(feed: Any, step: int) -> Any:
        batch = make(feed, step)
        for part in batch.parts:
            part["scale"] *= factors.get(step, 1.0)
        return batch

    return made


def recorded(take_step: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """Writes down what each step saw and found, numbers with all their digits."""

    def step(run: Any, batch: Any, rate: float) -> Any:
        whole = hashlib.sha256()
        for part in batch.parts:
            for name in sorted(part):
                whole.update(name.encode() + part[name].cpu().numpy().tobytes())
        result = take_step(run, batch, rate)
        line = {
            "step": batch.step, "examples": batch.examples, "batch": whole.hexdigest(), "rate": rate,
            "shapes": [[list(part[name].shape) for name in sorted(part)] for part in batch.parts],
            "terms": repr(result.terms.tolist()), "length": repr(result.length.item()), "skip": result.skip.item(),
        }  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return result

    return step


class Calls:
    """Counts the calls that reach the disk while a checkpoint is saved and old ones go; dies before one of them."""

    DISK = frozenset("open write close fsync rename replace unlink remove rmdir mkdir chmod scandir".split())

    def __init__(self, last: tuple[int, int] | None) -> None:
        self.last = last  # which save, which of its calls
        self.made: list[list[str]] = []

    def watched(self, function: Callable[..., Any], begins: bool = False) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if begins:
                self.made.append([])
            sys.setprofile(self._see)
            try:
                return function(*given, **more)
            finally:
                sys.setprofile(None)

        return call

    def _see(self, frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in self.DISK:
            if (len(self.made) - 1, len(self.made[-1])) == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            self.made[-1].append(f"{function.__name__} {_place(frame)}")


def _place(frame: Any) -> str:
    """What is being written: the file's name, or the function."""
    while frame is not None:
        name = frame.f_code.co_name
        if name in ("write_tensors", "write_json"):
            return frame.f_locals["path"].name
        if name in ("write_checkpoint", "keep_newest"):
            return name
        frame = frame.f_back
    return "?"


def _small_disk(folder: Path, kilobytes: int) -> None:
    """Lays a disk of this size over the folder, for this process alone, with what the folder holds on it."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mounts, private = 0x10000000, 0x00020000, 0x40000 | 0x4000
    contents = folder.with_name(f"{folder.name}.contents")
    shutil.copytree(folder, contents)
    if libc.unshare(new_mounts):  # nobody special: then as root of a world of our own
        maps = {"setgroups": "deny", "uid_map": f"0 {os.getuid()} 1", "gid_map": f"0 {os.getgid()} 1"}
        if libc.unshare(new_user | new_mounts):
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text)
    libc.mount(b"none", b"/", None, private, None)
    if libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, f"size={kilobytes}k".encode()):
        raise OSError(ctypes.get_errno(), "mount")
    shutil.copytree(contents, folder, dirs_exist_ok=True)


if __name__ == "__main__":
    serve()
    os._exit(0)  # taking torch apart would take a second
