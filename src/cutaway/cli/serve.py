"""`cutaway serve`: models over HTTP, for the clients of OpenAI's API and others."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutaway.cli.shared.models import In, Precision, as_trained, load_ready
from cutaway.cli.shared.options import Json
from cutaway.errors import InputError, MissingExtra
from cutaway.pictures.terminal_text import json_text
from cutaway.serving.limits import Limits

if TYPE_CHECKING:
    from cutaway.serving.server import Server
    from cutaway.serving.service import Service

KEY = "CUTAWAY_API_KEY"
Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL…]", help="Models' folders, files or names; without any, the bundled ones."),
]
Host = Annotated[str, typer.Option("--host", help="The address to listen at; 0.0.0.0 is every one of this machine.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen at; 0 is a free one.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="A name by which this server may be asked. Default: this machine's own where only it can ask, else any. "
        "May be repeated.",
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="ORIGIN",
        help="A site whose pages may ask this server, such as https://example.org. May be repeated.",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Start, ask each model one question, and end.")]


def serve(
    models: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 8321,
    check: Check = False,
    precision: In = Precision.auto,
    allow_host: Hosts = None,
    allow_origin: Origins = None,
    *,
    limits: Limits,
    as_json: Json = False,
) -> None:
    """Serve models over HTTP: OpenAI's API, and what runs a server.

    The environment variable CUTAWAY_API_KEY sets a key that every request needs. SIGTERM lets running requests end.
    Logs are lines of JSON on stderr; they hold nobody's text.
    """
    folders = _folders(models or [])
    key = _key()
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from None

    from cutaway.serving.app import create_app
    from cutaway.serving.gates import LOCAL
    from cutaway.serving.server import Server, listen
    from cutaway.serving.service import Service

    hosts = [*LOCAL, *(allow_host or [])] if host in LOCAL else allow_host
    if host not in LOCAL and key is None:
        print(f"warning: everybody who reaches {host} may ask this server: set {KEY}", file=sys.stderr)
    listener = listen(host, port)

    from cutaway.decoding.engine.scheduler import Scheduler
    from cutaway.serving.logs import start_logging

    start_logging()
    memory = {} if limits.memory is None else {"memory": limits.memory}
    scheduler = Scheduler(threads=limits.threads, most_waiting=limits.max_waiting, **memory)
    service = Service(scheduler, limits, key, loading=True)
    server = Server(create_app(service, hosts=hosts, origins=allow_origin or []), listener)
    if check:
        _check(server, service, folders, precision, as_json)
    else:
        _serve(server, service, folders, precision, as_json)


def _key() -> str | None:
    """The key of the environment, as a client sends it in a header."""
    key = os.environ.get(KEY)
    if key is None:
        return None
    key = key.strip()
    if not key:
        raise InputError(f"{KEY} is empty: unset it, or set it to a key")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{KEY} has characters that no header can hold: use letters, digits and marks of ASCII")
    return key


def _folders(models: list[str]) -> dict[str, Path]:
    """Name → folder of the models to be served."""
    from cutaway.bundled import HERE, find, names

    if not models:
        return {name: folder for name, folder in names().items() if folder.parent == HERE}
    found: dict[str, Path] = {}
    for model in models:
        path = find(model)
        name = path.resolve().name if path.is_dir() else path.stem
        if found.setdefault(name, path) != path:
            raise InputError(f"{found[name]} and {path} have the same name, {name!r}: rename one of them")
    return found


def _load(service: "Service", folders: dict[str, Path], precision: Precision) -> None:
    from cutaway.serving.logs import log_event
    from cutaway.serving.service import ServedModel

    for name, folder in folders.items():
        model, tokenizer, _ = load_ready(folder, precision)
        created = int(folder.stat().st_mtime)
        service.add(ServedModel(name, folder, model, tokenizer, created, as_trained(folder)))
        log_event("loaded", model=name, task=model.config.task)
    service.loading = False


def _serve(server: "Server", service: "Service", folders: dict[str, Path], precision: Precision, as_json: bool) -> None:
    """Listens from the beginning, so that /ready can say that the models are being loaded."""
    from threading import Thread

    problems: list[Exception] = []

    def load() -> None:
        try:
            _load(service, folders, precision)
            told = {"url": server.url, "models": list(service.models)}
            print(json_text(told) if as_json else f"{', '.join(service.models)} at {server.url}", flush=True)
        except Exception as error:
            problems.append(error)
            server.should_exit = True

    Thread(target=load, daemon=True).start()
    server.serve_until_told()
    if problems:
        raise problems[0]


def _check(server: "Server", service: "Service", folders: dict[str, Path], precision: Precision, as_json: bool) -> None:
    from cutaway.serving.self_check import check_models
    from cutaway.serving.server import InBackground

    with InBackground(server) as running:
        _load(service, folders, precision)
        found = list(check_models(running.url, service))
    if as_json:
        print(json_text([{"model": one.name, "route": one.route, "problem": one.problem} for one in found], 2))
    else:
        for one in found:
            print(f"{one.name}: {one.route} {one.problem or 'answers'}")
    raise typer.Exit(any(one.problem is not None for one in found))
