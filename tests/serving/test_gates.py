"""What a request passes on its way in: key, host, origin, size, form; and what errors never tell."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.served import client_of, running, served_model, service_of
from helpers.text_generators import byte_level_once, speaker

from cutaway.decoding.engine.scheduler import Scheduler
from cutaway.errors import CheckpointError, InputError
from cutaway.serving import openai_routes, schemas, translate_routes
from cutaway.serving.app import ROUTERS
from cutaway.serving.limits import Limits
from cutaway.serving.logs import JsonLines
from cutaway.serving.service import Service

KEY = "a secret"
QUESTION = {"model": "speaker", "prompt": "SECRETTEXT", "max_tokens": 2, "temperature": 0.0}
PATH = "/v1/completions"


@pytest.fixture(scope="module")
def server():
    limits = Limits(max_body=10_000, body_seconds=0.5)
    with running(service_of(served_model("speaker", speaker(), byte_level_once()), limits=limits)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


def routes() -> list[tuple[str, str]]:
    found = [(method, route.path) for router in ROUTERS for route in router.routes for method in route.methods]  # type: ignore[attr-defined]
    return [*found, ("GET", "/openapi.json"), ("GET", "/nowhere"), ("POST", "/"), ("GET", "/docs")]


# --- fault 30 ---------------------------------------------------------------------------------------------------------


def test_fault_30_every_route_needs_the_key():
    with running(service_of(served_model("speaker", speaker(), byte_level_once()), key=KEY)) as server:
        with client_of(server) as client:
            assert len(routes()) >= 10
            for method, path in routes():
                for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}):
                    answer = client.request(method, path, headers=headers, json=QUESTION)
                    assert answer.status_code == 401, (method, path, headers)
                    assert "this server needs its key" in str(answer.json()["error"])
        with client_of(server, headers={"authorization": f"Bearer {KEY}"}) as client:
            assert client.get("/health").status_code == 200
            assert client.post(PATH, json=QUESTION).status_code == 200


def test_fault_30_a_page_of_another_site_is_refused(client):
    for origin in ("https://evil.example", "null", "http://localhost", "http://127.0.0.1:1"):
        answer = client.post(PATH, json=QUESTION, headers={"origin": origin})
        assert answer.status_code == 403, origin
        assert "access-control-allow-origin" not in answer.headers
    own = str(client.base_url).rstrip("/")
    assert client.post(PATH, json=QUESTION, headers={"origin": own}).status_code == 200


def test_a_page_that_is_allowed():
    friend = "https://friend.example"
    with (
        running(service_of(served_model("speaker", speaker(), byte_level_once())), origins=[friend]) as server,
        client_of(server, headers={"origin": friend}) as client,
    ):
        answer = client.post(PATH, json=QUESTION)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, friend)
        preflight = client.options(PATH, headers={"access-control-request-method": "POST"})
        assert preflight.headers["access-control-allow-origin"] == friend
        evil = client.post(PATH, json=QUESTION, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403


def test_fault_30_names_that_point_here_are_refused(client):
    """DNS rebinding: the name of another site that leads to this machine."""
    for host, status in (("evil.example", 403), ("evil.example:8321", 403), ("localhost:8321", 200), ("[::1]", 200)):
        assert client.get("/health", headers={"host": host}).status_code == status, host


def test_fault_30_the_default_is_this_machine_alone():
    from inspect import signature

    from cutaway.cli.serve import serve

    assert signature(serve).parameters["host"].default == "127.0.0.1"


def test_fault_30_errors_tell_no_paths(monkeypatch):
    """Not of what is refused, and nothing at all of what goes wrong inside."""
    service = service_of(served_model("speaker", speaker(), byte_level_once()))
    folder = service.models["speaker"].folder
    errors: list[tuple[Exception, int]] = [
        (InputError(f"{folder}/tokenizer.json: it cannot read this text"), 400),
        (CheckpointError(f"{folder} is damaged"), 400),
        (RuntimeError(f"in {__file__}: SECRETTEXT"), 500),
        (OSError(2, "No such file", "/etc/shadow"), 500),
        (MemoryError(), 503),
    ]
    with running(service) as server, client_of(server) as client:
        for error, status in errors:

            def fail(*_: Any, error: Exception = error, **__: Any) -> None:
                raise error

            monkeypatch.setattr(openai_routes, "start", fail)
            for stream in (False, True):
                answer = client.post(PATH, json={**QUESTION, "stream": stream})
                assert answer.status_code == status, answer.text
                for secret in (str(folder), folder.parent.name, __file__, "shadow", "SECRETTEXT", "Traceback"):
                    assert secret not in answer.text


@pytest.mark.parametrize(("module", "path"), [(schemas, "/fill"), (translate_routes, "/translate")])
def test_large_bodies_are_read_beside_the_others(monkeypatch, module, path):
    """In threads; and not at all where the header has a wrong key."""
    threads = []

    def noted(data: bytes) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"x": len(data)}

    monkeypatch.setattr(module, "json_object", noted)
    service = service_of(served_model("speaker", speaker(), byte_level_once()), key=KEY)
    with running(service) as server, client_of(server) as client:
        headers = {"authorization": f"Bearer {KEY}"}
        for length in (10, 100_000, 20):
            assert client.post(path, content=b"x" * length, headers=headers).status_code == 400
        assert client.post(path, content=b"x", headers={"authorization": "Bearer wrong"}).status_code == 401
    loop, thread, again = threads
    assert loop == again != thread


def test_only_whole_places_of_models_are_redacted(tmp_path, monkeypatch):
    """`cutaway serve .` serves the folder that it is started in, whose name as given is in every message."""
    monkeypatch.chdir(tmp_path)
    inner, link = tmp_path / "inner", tmp_path / "link"
    inner.mkdir()
    link.symlink_to(inner)
    service = Service(Scheduler(threads=1))
    before = service.models
    for name, folder in (("here", Path()), ("linked", Path("link"))):
        service.add(replace(served_model(name, speaker(), None), folder=folder))
    assert service.redact("top_p=1.5: at most 1. Link it.") == "top_p=1.5: at most 1. Link it."
    assert service.redact(f"{link}/a, {inner}/b: {tmp_path}/c.") == "linked/a, linked/b: here/c."
    assert before == {}  # whoever goes through them meanwhile is not disturbed
    assert list(service.models) == ["here", "linked"]
    service.scheduler.close()


# --- fault 25 ---------------------------------------------------------------------------------------------------------

BODIES: dict[str, tuple[bytes, int]] = {
    "over the limit": (b'{"model": "speaker", "prompt": "' + b"a" * 20_000 + b'"}', 413),
    "nested": (b'{"model": ' * 900 + b"1" + b"}" * 900, 400),
    "nested lists": (b'{"prompt": ' + b"[" * 9_000, 400),
    "no JSON": (b"prompt=a", 400),
    "empty": (b"", 400),
    "a list": (b"[1]", 400),
    "half a character": (b'{"model": "speaker", "prompt": "\\ud800", "max_tokens": 2}', 400),
    "bad UTF-8": (b'{"model": "speaker", "prompt": "\xff\xfe"}', 400),
    "a key twice": (b'{"model": "speaker", "model": "x", "prompt": "a"}', 400),
    "a huge number": (b'{"model": "speaker", "prompt": "a", "max_tokens": ' + b"9" * 5_000 + b"}", 400),
    "NUL": (b'{"model": "speaker", "prompt": "a\\u0000b", "max_tokens": 2, "temperature": 0}', 200),
}


@pytest.mark.parametrize("name", BODIES)
def test_fault_25_bodies(client, name):
    content, status = BODIES[name]
    answer = client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["message"]


def test_fault_25_deep_nesting():
    service = service_of(served_model("speaker", speaker(), byte_level_once()))
    with running(service) as server, client_of(server) as client:
        for content in (b'{"a":' * 100_000, b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
            assert client.post(PATH, content=content).status_code == 400
        assert client.get("/health").status_code == 200


def test_fault_25_chunks_without_an_end(server, client):
    def endless() -> Iterator[bytes]:
        while True:
            yield b"a" * 1_000

    try:
        status = client.post(PATH, content=endless()).status_code
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        status = 413  # the server closed the connection while this side was still sending
    assert status == 413
    assert client.get("/health").status_code == 200


def test_fault_25_a_length_that_is_wrong(server):
    for length in ("-1", "99999999999999999999999", "x"):
        answer = raw(server, f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
        assert answer.split()[1] in ("400", "413"), answer


def test_a_body_that_does_not_come(server):
    answer = raw(server, f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{")
    assert answer.split()[1] == "408"
    assert "x-should-retry: false" in answer


def raw(server: Any, request: str) -> str:
    with socket.create_connection(server.listener.getsockname()) as connection:
        connection.settimeout(60)
        connection.sendall(request.encode())
        return connection.recv(10_000).decode()


# --- the form of answers ----------------------------------------------------------------------------------------------


def test_every_answer_has_the_id_of_its_request(client):
    for method, path in routes():
        own = client.request(method, path, json=QUESTION, headers={"x-request-id": "mine-1"})
        assert own.headers["x-request-id"] == "mine-1"
    ids = {
        client.get("/health", headers={"x-request-id": given}).headers["x-request-id"] for given in ("", "a b", b"\xe9")
    }
    assert len(ids) == 3
    assert all(len(id) == 32 for id in ids)


def test_errors_have_one_form(client):
    answers = [
        client.get("/nowhere"),
        client.get(PATH),
        client.post(PATH, json={}),
        client.post(PATH, json={**QUESTION, "model": "x"}),
        client.get("/v1/models/x"),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 400, 404, 404]
    for answer in answers:
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


# --- logs -------------------------------------------------------------------------------------------------------------


def test_logs_are_json_and_hold_nobodys_text(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(logging.getLogger("httpx"), "disabled", True)  # the client's own log
    caplog.handler.setFormatter(JsonLines())
    service = service_of(served_model("speaker", speaker(), byte_level_once()))
    with running(service) as server, client_of(server) as client:
        client.post(PATH, json=QUESTION, headers={"x-request-id": "one"})
        client.post(PATH, json={**QUESTION, "stream": True, "stop": "SECRETTEXT"})
        client.post(PATH, json={**QUESTION, "SECRETTEXT": 1})
        client.post(PATH, json={**QUESTION, "model": "SECRETTEXT"})
        client.get("/SECRETTEXT", params={"q": "SECRETTEXT"})

        def fail(*_: Any, **__: Any) -> None:
            raise ValueError("SECRETTEXT")

        monkeypatch.setattr(openai_routes, "start", fail)
        client.post(PATH, json=QUESTION, headers={"x-request-id": "broken"})
    lines = [json.loads(line) for line in caplog.text.splitlines() if line.startswith("{")]
    assert caplog.text.count("SECRETTEXT") == 0
    (first,) = (line for line in lines if line.get("id") == "one")
    assert first | {"time": 0, "ms": 0} == {
        "time": 0, "level": "info", "event": "request", "id": "one", "method": "POST", "route": PATH, "status": 200,
        "ms": 0, "model": "speaker", "prompt_tokens": 11, "generated_tokens": 2,
    }  # fmt: skip
    error, request = (line for line in lines if line.get("id") == "broken")
    assert (error["event"], error["exception"], request["status"]) == ("error", "ValueError", 500)
    assert error["at"][-1].endswith("fail")
    assert sum(line["event"] == "request" for line in lines) == 6


def test_what_other_packages_log_is_left_out():
    """asyncio writes out the exceptions that nobody has taken, and they may quote a text."""
    record = logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "future: %r", ("SECRETTEXT",), None)
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["event"]) == ("error", "a message of asyncio")
