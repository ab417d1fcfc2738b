"""The process around the application: its socket, its signals, its end.

SIGTERM and Ctrl-C drain: what runs may end, for at most `drain_seconds`; new requests are refused, with 503, and
`/health` still answers. A second signal stops at once.
"""

import os
import signal
import socket
import time
from threading import Thread
from types import FrameType, TracebackType

import uvicorn
from fastapi import FastAPI

from cutaway.errors import InputError
from cutaway.serving.logs import log_event
from cutaway.serving.service import Service

SECONDS_TO_CLOSE = 1  # for connections whose clients do not read what they are sent, and for steps that have begun


class Server(uvicorn.Server):
    """Serves an application on a socket, until a signal."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SECONDS_TO_CLOSE,
        )
        super().__init__(config)
        self.service: Service = app.state.service
        self.listener, self.deadline, self.interrupted = listener, float("inf"), False
        self.closing: Thread | None = None

    @property
    def url(self) -> str:
        host, port = self.listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve_until_told(self) -> None:
        """Serves; raises KeyboardInterrupt if it was Ctrl-C that ended it."""
        log_event("listening", url=self.url)
        try:
            self.run(sockets=[self.listener])
        finally:
            if not self.force_exit:
                self._close_scheduler().join(SECONDS_TO_CLOSE)
            self.listener.close()
        log_event("stopped")
        if self.interrupted:
            raise KeyboardInterrupt

    def drain(self) -> None:
        """Lets running requests end, and takes no more."""
        self.deadline = time.monotonic() + self.service.limits.drain_seconds
        self.service.draining = True

    def _close_scheduler(self) -> Thread:
        """In a thread of its own, as a step of an engine that has begun may last longer than anybody waits for it."""
        if self.closing is None:
            self.closing = Thread(target=self.service.scheduler.close, args=(0.0,), daemon=True)
            self.closing.start()
        return self.closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.draining:
            self.force_exit = self.should_exit = True
        self.interrupted = sig == signal.SIGINT
        self.drain()

    async def on_tick(self, counter: int) -> bool:
        """Every tenth of a second."""
        if self.service.draining and not self.should_exit:
            late = time.monotonic() > self.deadline
            if late:
                log_event("cut off", requests=self.service.n_open)
                self._close_scheduler()  # their clients are told
            self.should_exit = late or not self.service.n_open
        return await super().on_tick(counter)


class InBackground:
    """Runs a server in a thread: `with InBackground(server): ...`."""

    def __init__(self, server: Server) -> None:
        self.server, self.thread = server, Thread(target=server.serve_until_told, daemon=True)

    def __enter__(self) -> Server:
        self.thread.start()
        return self.server

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.drain()
        self.thread.join()


def listen(host: str, port: int) -> socket.socket:
    """A socket on which connections wait from now on. Port 0 is a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # its connections inherit it: otherwise the end of an answer waits 40 ms until its beginning is acknowledged
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)  # a name that leads nowhere has one of another kind
        reason = str(error) if isinstance(error, socket.gaierror) or not number else os.strerror(number)
        raise InputError(f"host={host} port={port}: {reason.lower()}; choose another one") from None
