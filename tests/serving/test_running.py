"""A server under way: clients that leave, too many of them, signals, and its end."""

import asyncio
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from helpers.served import GUARD, ask_all, chunks_of, client_of, running, served_model, service_of
from helpers.text_generators import byte_level_once, speaker
from starlette.requests import Request
from starlette.types import Message

import cutaway
from cutaway.cli.serve import serve
from cutaway.decoding.options import GenerationOptions
from cutaway.errors import InputError
from cutaway.serving.app import create_app
from cutaway.serving.generation import start
from cutaway.serving.limits import Limits
from cutaway.serving.self_check import check_models
from cutaway.serving.server import Server, listen
from cutaway.serving.service import ServedModel, Service
from cutaway.serving.streams import EventStream

PATH = "/v1/completions"
QUESTION: dict[str, Any] = {"model": "speaker", "prompt": "The", "temperature": 0.0}


def endless() -> ServedModel:
    """A model that never ends by itself, and has room for more than any test waits for."""
    return served_model("speaker", speaker(max_len=100_000, end_ids=()), byte_level_once())


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def is_idle(service: Service) -> bool:
    return service.scheduler.n_running == service.scheduler.n_waiting == service.n_open == 0


# --- clients that leave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_fault_27_the_work_of_a_client_that_leaves_is_stopped(stream, n):
    service = service_of(endless(), limits=Limits(max_tokens=90_000))
    long = {**QUESTION, "max_tokens": 90_000, "stream": stream, "n": n, "temperature": 1.0}
    with running(service) as server:
        with socket.create_connection(server.listener.getsockname()) as connection:
            content = json.dumps(long)
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
            connection.sendall((head + content).encode())
            wait_until(lambda: service.scheduler.n_running == n)
            if stream:
                assert b"200 OK" in connection.recv(1000)
        wait_until(lambda: is_idle(service))


def test_fault_27_a_client_that_leaves_before_its_stream_begins():
    """Nothing is sent, and nothing asked of the chunks: still what they come from is cancelled."""
    begun: list[bool] = []
    cancelled: list[bool] = []

    async def chunks() -> AsyncIterator[dict[str, Any] | None]:
        begun.append(True)
        yield {}

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        await asyncio.sleep(0.01)

    async def answer() -> None:
        scope = {"type": "http"}
        await EventStream(Request(scope), chunks(), lambda: cancelled.append(True))(scope, receive, send)

    asyncio.run(answer())
    assert not begun
    assert cancelled


def test_neighbours_of_clients_that_leave_say_what_they_say_alone():
    service = service_of(endless(), limits=Limits(max_tokens=90_000))
    short = {**QUESTION, "max_tokens": 60}

    async def leave(client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(PATH, json={**QUESTION, "max_tokens": 90_000}, timeout=0.3)

    with running(service) as server, client_of(server) as client:
        alone = client.post(PATH, json=short).json()["choices"]
        answers = ask_all(
            server, lambda client: [leave(client) if i % 2 else client.post(PATH, json=short) for i in range(16)]
        )
        assert [one.json()["choices"] for one in answers[::2]] == [alone] * 8
        wait_until(lambda: is_idle(service))


def test_a_client_that_reads_slowly_holds_nobody_up():
    service = service_of(endless(), limits=Limits(max_tokens=90_000))
    with running(service) as server, client_of(server) as client:
        with socket.create_connection(server.listener.getsockname()) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            content = json.dumps({**QUESTION, "max_tokens": 5_000, "stream": True, "logprobs": 20})
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
            slow.sendall((head + content).encode())
            wait_until(lambda: service.scheduler.n_running == 1)
            for _ in range(5):
                assert slow.recv(1)
                assert client.post(PATH, json={**QUESTION, "max_tokens": 5}).status_code == 200
        wait_until(lambda: is_idle(service))


def test_of_a_stream_that_is_read_slowly_the_latest_is_kept():
    """Not each step's whole text; and the pieces make the text all the same."""
    service = service_of(endless())
    served = service.models["speaker"]

    async def read() -> tuple[int, str, str]:
        options = GenerationOptions(max_tokens=300)
        texts = await start(service, served, ["The"], options, stream=True)
        said, most, whole = "", 0, ""
        async for piece in texts.pieces():
            assert piece is not None
            said += piece.text
            whole = piece.whole.generated.text if piece.whole else ""
            if not most:
                await asyncio.to_thread(texts.tickets[0].result, GUARD)
                await asyncio.sleep(0)
                most = len(texts.events)
        return most, said, whole

    most, said, whole = asyncio.run(read())
    service.scheduler.close()
    assert most == 1
    assert said == whole == cutaway.generate(served.model, served.tokenizer, "The", max_tokens=300)


def test_fault_29_requests_and_aborts_leave_nothing():
    service = service_of(endless(), limits=Limits(max_tokens=20_000, preparing=4))

    async def leave(client: httpx.AsyncClient, stream: bool) -> None:
        question = {**QUESTION, "max_tokens": 20_000, "stream": stream}
        with suppress(httpx.ReadTimeout):
            async with client.stream("POST", PATH, json=question, timeout=0.1) as answer:
                await answer.aread()

    def some(server: Any) -> None:
        short = {**QUESTION, "max_tokens": 2}
        ask_all(server, lambda client: [client.post(PATH, json={**short, "stream": i % 2 > 0}) for i in range(60)])
        ask_all(server, lambda client: [leave(client, i % 2 > 0) for i in range(30)])
        wait_until(lambda: is_idle(service))

    def left(server: Any) -> list[int]:
        wait_until(lambda: not server.server_state.connections)
        gc.collect()
        kinds = ("Ticket", "Texts", "Work", "Request", "RequestResponseCycle", "HTTPConnection")
        kept = sum(type(one).__name__ in kinds for one in gc.get_objects())
        return [len(os.listdir("/proc/self/fd")), threading.active_count(), kept]

    with running(service) as server:
        some(server)
        files, threads, objects = left(server)
        for _ in range(2):
            some(server)
        after = left(server)
    assert after[0] == files
    assert after[1] - threads <= 4  # those that prepare requests come as they are needed, and stay
    assert after[2] - objects < 30  # of 180 requests; the last ones may still be referred to


# --- limits -----------------------------------------------------------------------------------------------------------


def test_fault_26_the_excess_is_told_to_come_back():
    """Whoever is let in gets the same answer as always."""
    service = service_of(endless(), limits=Limits(max_waiting=8), rows=2)
    question = {**QUESTION, "max_tokens": 200}
    with running(service) as server, client_of(server) as client:
        alone = client.post(PATH, json=question).json()["choices"]
        answers = ask_all(server, lambda client: [client.post(PATH, json=question) for _ in range(64)])
        refused = [answer for answer in answers if answer.status_code != 200]
        assert {answer.status_code for answer in refused} == {429}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert {answer.json()["error"]["type"] for answer in refused} == {"rate_limit_error"}
        assert 2 <= 64 - len(refused) < 64
        assert all(answer.json()["choices"] == alone for answer in answers if answer not in refused)
        assert client.get("/health").status_code == 200


def test_an_answer_that_takes_too_long():
    service = service_of(endless(), limits=Limits(max_tokens=90_000, max_seconds=0.5))
    long = {**QUESTION, "max_tokens": 90_000}
    with running(service) as server, client_of(server) as client:
        answer = client.post(PATH, json=long)
        assert answer.status_code == 504
        assert answer.headers["x-should-retry"] == "false"
        stream = client.post(PATH, json={**long, "stream": True})
        assert stream.status_code == 200
        error = json.loads(stream.text.split("\n\n")[-2].removeprefix("data: "))["error"]
        assert error == answer.json()["error"]
        assert "[DONE]" not in stream.text
        wait_until(lambda: is_idle(service))


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/v1/embeddings", {"model": "encoder", "input": "the cat"}),
        ("/fill", {"model": "encoder", "text": "the [MASK]"}),
        ("/v1/completions", {**QUESTION, "max_tokens": 1, "echo": True, "logprobs": 1}),
    ],
)
def test_an_answer_without_a_text_takes_too_long_as_well(path, question):
    service = service_of(limits=Limits(max_seconds=0.3))
    block, blocked = threading.Event(), threading.Event()

    def wait() -> None:
        blocked.set()
        block.wait(GUARD / 8)

    with running(service) as server, client_of(server) as client:
        service.scheduler.call(wait)
        blocked.wait(GUARD)
        try:
            assert client.post(path, json=question).status_code == 504
        finally:
            block.set()


def test_a_stream_says_that_it_is_alive():
    service = service_of(endless(), limits=Limits(ping_seconds=0.02))
    block, blocked = threading.Event(), threading.Event()

    def wait() -> None:
        blocked.set()
        block.wait(GUARD)

    with running(service) as server, client_of(server) as client:
        service.scheduler.call(wait)
        blocked.wait(GUARD)
        pings = []
        with client.stream("POST", PATH, json={**QUESTION, "stream": True, "max_tokens": 3}) as answer:
            for line in answer.iter_lines():
                pings += [line] if line.startswith(":") else []
                if len(pings) == 3:
                    block.set()
        assert set(pings) == {": ping"}


def test_health_answers_while_all_threads_compute():
    service = service_of(endless())
    block = threading.Event()
    with running(service) as server, client_of(server) as client:
        service.scheduler.call(lambda: block.wait(GUARD))
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"status": "ok"}
        block.set()


# --- loading and stopping ---------------------------------------------------------------------------------------------


def test_what_answers_while_models_are_loaded():
    service = service_of(endless())
    service.loading = True
    with running(service) as server, client_of(server) as client:
        assert client.get("/health").status_code == 200
        for answer in (client.get("/ready"), client.post(PATH, json=QUESTION), client.get("/v1/models")):
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
        service.loading = False
        assert client.get("/ready").status_code == 200
        assert client.post(PATH, json=QUESTION).status_code == 200


def test_answers_are_sent_without_delay():
    """Nagle's algorithm would hold back the body of each answer until the client has acknowledged its headers."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def text_of(stream: str) -> str:
    """What a stream says; how many tokens stand in a piece depends on when they are read."""
    return "".join(chunk["choices"][0]["text"] for chunk in chunks_of(stream))


def test_what_runs_ends_while_the_server_stops():
    service = service_of(endless(), limits=Limits(drain_seconds=GUARD))
    question = {**QUESTION, "max_tokens": 400, "stream": True}
    with running(service) as server, client_of(server) as client:
        expected = client.post(PATH, json=question).text
        with client.stream("POST", PATH, json=question) as answer:
            lines = answer.iter_lines()
            first = next(lines)
            server.drain()
            assert client.get("/health").status_code == 200
            for refused in (client.get("/ready"), client.post(PATH, json=QUESTION)):
                assert refused.status_code == 503
            rest = "\n".join([first, *lines])
    assert text_of(rest.strip() + "\n\n") == text_of(expected)


def test_what_takes_longer_is_cut_off_and_told():
    service = service_of(endless(), limits=Limits(max_tokens=90_000, drain_seconds=0.2))
    question = {**QUESTION, "max_tokens": 90_000, "stream": True}
    with (
        running(service) as server,
        client_of(server) as client,
        client.stream("POST", PATH, json=question) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        server.drain()
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "stopped"


@pytest.mark.parametrize("n_signals", [1, 2])
def test_a_step_that_does_not_end_holds_no_server_up(n_signals):
    service = service_of(endless(), limits=Limits(drain_seconds=0.0 if n_signals == 1 else GUARD))
    block, blocked = threading.Event(), threading.Event()

    def wait() -> None:
        blocked.set()
        block.wait(GUARD)

    server = Server(create_app(service), listen("127.0.0.1", 0))
    thread = threading.Thread(target=server.serve_until_told, daemon=True)
    thread.start()
    try:
        with client_of(server) as client, ThreadPoolExecutor() as pool:
            service.scheduler.call(wait)
            blocked.wait(GUARD)
            asked = pool.submit(client.post, PATH, json=QUESTION)
            wait_until(lambda: service.scheduler.n_waiting == 1)
            for _ in range(n_signals):
                server.handle_exit(signal.SIGTERM, None)
            thread.join(GUARD / 4)
            assert not thread.is_alive()
            assert asked.exception(GUARD) is not None or asked.result().status_code >= 500
    finally:
        block.set()


# --- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def command(*words: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """`cutaway serve` in a process of its own, and the lines that it has logged until it was ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cutaway", "serve", "books", "--port", "0", *words],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    lines: list[dict[str, Any]] = []
    try:
        assert process.stderr is not None
        while not any(line["event"] == "loaded" for line in lines):
            line = process.stderr.readline()
            assert line, "it ended before it was ready"
            lines.append(json.loads(line))
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def url_of(lines: list[dict[str, Any]]) -> str:
    return next(line["url"] for line in lines if line["event"] == "listening")


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_fault_28_a_signal_lets_what_runs_end(sign, code):
    question = {"model": "books", "prompt": "The", "max_tokens": 200, "temperature": 0.0, "stream": True}
    with command() as (process, lines), httpx.Client(base_url=url_of(lines), timeout=GUARD, trust_env=False) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        expected = text_of(client.post(PATH, json=question).text)
        with client.stream("POST", PATH, json=question) as answer:
            streamed = answer.iter_lines()
            first = next(streamed)
            process.send_signal(sign)
            wait_until(lambda: client.get("/ready").status_code == 503)
            assert client.post(PATH, json=question).status_code == 503
            text = "\n".join([first, *streamed]).strip()
        assert text_of(text) == expected
        assert process.wait(GUARD) == code
        assert process.stderr is not None
        rest = [json.loads(line) for line in process.stderr.read().splitlines() if line.startswith("{")]
        assert rest[-1]["event"] == "stopped"


def test_the_key_comes_from_the_environment():
    with (
        command(CUTAWAY_API_KEY=" secret\n") as (_, lines),
        httpx.Client(base_url=url_of(lines), timeout=GUARD, trust_env=False) as client,
    ):
        assert client.get("/v1/models").status_code == 401
        own = {"authorization": "Bearer secret"}
        wait_until(lambda: client.get("/ready", headers=own).status_code == 200)
        assert [model["id"] for model in client.get("/v1/models", headers=own).json()["data"]] == ["books"]


@pytest.mark.parametrize(
    ("key", "said"), [(" ", "is empty"), ("schlüssel", "no header can hold"), ("a\nb", "no header")]
)
def test_a_key_that_no_client_could_send_is_refused(monkeypatch, key, said):
    monkeypatch.setenv("CUTAWAY_API_KEY", key)
    with pytest.raises(InputError, match=f"CUTAWAY_API_KEY .*{said}"):
        serve(["books"], limits=Limits())


def test_two_servers_cannot_have_one_port():
    with command() as (_, lines):
        port = url_of(lines).rpartition(":")[2]
        second = subprocess.run(
            [sys.executable, "-m", "cutaway", "serve", "books", "--port", port],
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        assert second.returncode == 2
        assert re.fullmatch(rf"error: --host 127.0.0.1 --port {port}: address already in use; .*\n", second.stderr)


def test_check_asks_each_model_by_the_route_of_its_task():
    ran = subprocess.run(
        [sys.executable, "-m", "cutaway", "serve", "--check", "--port", "0", "--json"],
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert ran.returncode == 0, ran.stdout
    assert json.loads(ran.stdout) == [
        {"model": "books", "route": "/v1/completions", "problem": None},
        {"model": "cloze", "route": "/fill", "problem": None},
        {"model": "digits", "route": "/classify", "problem": None},
        {"model": "en-de", "route": "/translate", "problem": None},
    ]


def test_check_says_what_does_not_work():
    service = service_of(endless())
    with running(service) as server:
        assert [one.problem for one in check_models(server.url, service)] == [None]
        service.loading = True
        (one,) = check_models(server.url, service)
    assert one.route == "/v1/completions"
    assert "status 503" in str(one.problem)
    assert "being loaded" in str(one.problem)
