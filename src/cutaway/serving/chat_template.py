"""Chat templates: from the messages of a conversation to the prompt that a model was trained on.

    render("{% for m in messages %}{{ m.role }}: {{ m.content }}\\n{% endfor %}", [{"role": "user", "content": "Hi"}])

A template is a program in Jinja that comes with a model. It is rendered in Jinja's sandbox, in a process of its own
that has a limit on its work and its memory: an expression such as `'a' * 10**9` is one instruction of Python, which no
check inside the interpreter could stop.
"""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from select import select
from threading import Lock
from typing import Any

from cutaway.errors import InputError, MissingExtra
from cutaway.tokens import Tokenizer

LONGEST_TEMPLATE = 200_000  # characters; the longest published ones have 20,000
LONGEST_PROMPT = 4_000_000
SECONDS = 1  # of the processor's time
MEMORY = 512  # megabytes
HANGS = 60  # seconds without an answer, though it takes no time of the processor


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    tokens: Mapping[str, str] | None = None,
) -> str:
    """The prompt of a conversation. `tokens` are the special tokens that templates name, such as `bos_token`."""
    if len(template) > LONGEST_TEMPLATE:
        raise InputError(f"the chat template has {len(template):,} characters; {LONGEST_TEMPLATE:,} are the most")
    names = {**(tokens or {}), "messages": messages, "add_generation_prompt": add_generation_prompt}
    names |= {"tools": None, "documents": None}
    try:
        asked = json.dumps({"template": template, "names": names, "longest": LONGEST_PROMPT}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the messages cannot be written as JSON: {error}") from None
    answer = _worker.ask(asked)
    if "error" in answer:
        raise InputError(f"the chat template of this model: {answer['error']}")
    return answer["text"]


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens by the names that templates have for them."""
    return {f"{role}_token": token for role, token in tokenizer.roles.items()}


class _Worker:
    """The process that renders, started when it is first needed, and again when a template has ended it."""

    def __init__(self) -> None:
        self.lock = Lock()  # one template at a time: each takes a millisecond
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, line: str) -> dict[str, str]:
        with self.lock:
            process = self._started()
            try:
                found = self._answer(process, line.encode() + b"\n")
            except OSError:  # it ended while it read
                found = b""
            if not found.endswith(b"\n"):
                self.stop()
                return {"error": f"it takes more than {SECONDS} s of the processor, or more than {MEMORY} MB"}
            answer: dict[str, str] = json.loads(found)
            return answer

    def _answer(self, process: "subprocess.Popen[bytes]", line: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        found = b""
        while not found.endswith(b"\n") and select([process.stdout], [], [], HANGS)[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            found += piece
        return found

    def _started(self) -> "subprocess.Popen[bytes]":
        if self.process is None or self.process.poll() is not None:
            if find_spec("jinja2") is None:
                raise MissingExtra("jinja2", "serve")
            self.stop()
            script = Path(__file__).with_name("template_worker.py")
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(script), str(SECONDS), str(MEMORY)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self.process

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            for stream in (self.process.stdin, self.process.stdout):
                if stream is not None:
                    stream.close()
            self.process.wait()
            self.process = None


_worker = _Worker()
atexit.register(_worker.stop)
