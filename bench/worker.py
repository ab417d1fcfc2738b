"""An engine in a process of its own: a benchmark's script, started with --worker, answers one JSON line for each."""

import json
import subprocess
import sys
from typing import Any


class Worker:
    """A process that stays alive between questions, idle while another engine is asked."""

    def __init__(self, script: str, *args: str) -> None:
        command = [sys.executable, script, "--worker", *args]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello = self.listen()

    def ask(self, question: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return self.listen()

    def listen(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended: {self.process.args}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
