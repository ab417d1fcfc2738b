"""A server beside others: requests in a second and waiting times, by the number of clients that ask at once.

    .venv/bin/python bench/serve.py translate en-de sentences.txt --to de           # a sentence on each line
    .venv/bin/python bench/serve.py generate MODEL prompts.txt --hf EXPORTED        # its weights for transformers
    .venv/bin/python bench/serve.py watch en-de sentences.txt --to de               # one of 32 clients watches a head

Each server is a process of its own, and they take turns. A client asks for one sentence, waits for the answer, and asks
for the next. `translate`: the same weights in 8 bits behind CTranslate2 in a FastAPI app, which translates whatever
waits as one batch. `generate`: `transformers serve`, greedy, the same number of tokens.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

START = 180  # seconds that a server may take to start
WARM = 2  # requests of each client before the clock starts


# --- the peer: CTranslate2 behind FastAPI -----------------------------------------------------------------------------


def ctranslate2_app(model: Path, exported: Path, to: str, threads: str) -> Any:
    """`/translate` as ours; a batch is whatever waits, at most 64 sentences, by translators that run side by side."""
    import ctranslate2
    from fastapi import FastAPI, Request

    import cutaway
    from cutaway.decoding.translate_sentences import encode_sources

    net: Any = cutaway.load(model)
    tokenizer = cutaway.load_tokenizer(model)
    tag, vocabulary = tokenizer.tag_id(to) if to else None, tokenizer.backend
    inter, intra = map(int, threads.split("x"))
    engine = ctranslate2.Translator(str(exported), compute_type="int8", inter_threads=inter, intra_threads=intra)
    waiting: deque[tuple[list[str], int, asyncio.Future[str]]] = deque()
    wake: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while True:
            wake.get()
            taken = [waiting.popleft() for _ in range(min(len(waiting), 64))]
            if not taken:
                continue
            beam = taken[0][1]
            found = engine.translate_batch([words for words, *_ in taken], beam_size=beam, max_decoding_length=256)
            for (_, _, future), one in zip(taken, found, strict=True):
                text = tokenizer.decode([vocabulary.token_to_id(word) for word in one.hypotheses[0]])
                future.get_loop().call_soon_threadsafe(future.set_result, text)

    for _ in range(inter):
        threading.Thread(target=work, daemon=True).start()
    app = FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/translate")
    async def translate(request: Request) -> dict[str, str]:
        asked = await request.json()
        (source,) = encode_sources(net, tokenizer, [asked["q"]], tag, net.config.end_ids[0])
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting.append(([vocabulary.id_to_token(id) for id in source], asked["beam"], future))
        wake.put(None)
        return {"translatedText": await future}

    return app


# --- servers ----------------------------------------------------------------------------------------------------------


class Server:
    """A server in a process of its own, on a free port of this machine."""

    def __init__(self, name: str, command: list[str], ready: str = "/ready", **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [word.replace("PORT", str(self.port)) for word in command]
        self.log = tempfile.NamedTemporaryFile(suffix=".log")  # noqa: SIM115  (closed with the server)
        self.name = name
        self.process = subprocess.Popen(
            words, env=os.environ | environment, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._wait(ready)

    def _wait(self, ready: str) -> None:
        end = time.monotonic() + START
        while time.monotonic() < end and self.process.poll() is None:
            try:
                status, _ = asyncio.run(Client(self.port).get(ready))
            except (OSError, EOFError):
                status = 0
            if status == 200:
                return
            time.sleep(0.2)
        raise SystemExit(f"{self.name} did not start:\n{Path(self.log.name).read_text()[-2000:]}")

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


class Client:
    """HTTP over one connection that stays open, with little work: it shares the cores with the server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        return await self._ask(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def get(self, path: str) -> tuple[int, Any]:
        return await self._ask(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

    async def _ask(self, data: bytes) -> tuple[int, Any]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return int(lines[0].split()[1]), json.loads(body) if body[:1] in (b"{", b"[") else body

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


async def load(port: int, path: str, bodies: list[dict[str, Any]], clients: int, watchers: int = 0) -> dict[str, Any]:
    """All bodies, asked by so many clients side by side; the first `watchers` of these ask with a `watch`."""
    waiting, answers, times = deque(enumerate(bodies)), {}, []
    started = asyncio.Event()

    async def work(number: int) -> None:
        client = Client(port)
        for n in range(WARM):
            await client.post(path, bodies[(number + n) % len(bodies)])
        await started.wait()
        while waiting:
            which, body = waiting.popleft()
            if number < watchers:
                body = body | {"watch": {"heads": ["decoder.0.cross.0"]}}
            start = time.perf_counter()
            status, answer = await client.post(path, body)
            if status != 200:
                raise SystemExit(f"{status}: {answer}")
            if number >= watchers:
                times.append(time.perf_counter() - start)
            answers[which] = answer
        client.close()

    tasks = [asyncio.create_task(work(number)) for number in range(clients)]
    await asyncio.sleep(0.5)
    start = time.perf_counter()
    started.set()
    await asyncio.gather(*tasks)
    seconds = time.perf_counter() - start
    times.sort()
    rate = len(times) / seconds
    return {"rate": rate, "median": median(times), "p95": times[int(0.95 * (len(times) - 1))], "answers": answers}


# --- what is compared -------------------------------------------------------------------------------------------------


def ours(model: str, **environment: str) -> Server:
    return Server("cutaway", [sys.executable, "-m", "cutaway", "serve", model, "--port", "PORT"], **environment)


def compare(
    given: argparse.Namespace, makers: dict[str, Any], path: str, bodies: dict[str, list[dict[str, Any]]]
) -> None:
    """A table: a row for each number of clients, with the medians of the rounds and the ratios of each."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for turn in range(given.rounds):
        for name in list(makers)[:: 1 if turn % 2 == 0 else -1]:
            server = makers[name]()
            try:
                for clients in given.clients:
                    some = bodies[name][: given.each * clients]
                    found.setdefault((name, clients), []).append(asyncio.run(load(server.port, path, some, clients)))
            finally:
                server.close()
    print("| clients | server | requests/s | median wait | 95 % | ours to theirs, by round |")
    print("|---|---|---|---|---|---|")
    first = next(iter(makers))
    for clients in given.clients:
        for name in makers:
            its = found[name, clients]
            rate, wait, p95 = (median(one[key] for one in its) for key in ("rate", "median", "p95"))
            ratios = [a["rate"] / b["rate"] for a, b in zip(found[first, clients], its, strict=True)]
            said = "" if name == first else ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {clients} | {name} | {rate:.1f} | {1000 * wait:.0f} ms | {1000 * p95:.0f} ms | {said} |")


def translate(given: argparse.Namespace) -> None:
    import cutaway
    from cutaway.checkpoints import export

    lines = given.texts.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ct2"
        export(cutaway.load(given.model), exported, to="ctranslate2", tokenizer=cutaway.load_tokenizer(given.model))
        peer = [sys.executable, __file__, "peer", given.model, "--exported", str(exported), "--to", given.to]
        makers = {"cutaway": lambda: ours(given.model)}
        for way in given.theirs:
            command = [*peer, "--threads", way, "--port", "PORT"]
            makers[f"CTranslate2 {way}"] = lambda command=command, way=way: Server(f"CTranslate2 {way}", command)
        body = {"source": "auto", "target": given.to, "beam": given.beam}
        compare(given, makers, "/translate", {name: [{"q": line} | body for line in lines] for name in makers})


def generate(given: argparse.Namespace) -> None:
    prompts = given.texts.read_text(encoding="utf-8").splitlines()
    theirs = ["transformers", "serve", "--host", "127.0.0.1", "--port", "PORT", "--device", "cpu", "--dtype", "float32"]
    theirs[0] = str(Path(sys.executable).parent / theirs[0])
    makers = {
        "cutaway": lambda: ours(given.model),
        "transformers serve": lambda: Server("transformers serve", theirs, "/health", HF_HUB_OFFLINE="1"),
    }
    body = {"max_tokens": given.tokens, "temperature": 0}
    names = {"cutaway": Path(given.model).name, "transformers serve": given.hf}
    messages = {name: [{"model": names[name], "messages": [{"role": "user", "content": one}]} | body for one in prompts]
                for name in makers}  # fmt: skip
    compare(given, makers, "/v1/chat/completions", messages)


def watch(given: argparse.Namespace) -> None:
    """What one watching client of 32 costs the others, by turns on one server."""
    lines = given.texts.read_text(encoding="utf-8").splitlines()
    body = {"source": "auto", "target": given.to, "beam": given.beam}
    bodies = [{"q": line} | body for line in lines][: given.each * 32]
    server = ours(given.model)
    try:
        rates: dict[int, list[float]] = {0: [], 1: []}
        for turn in range(given.rounds):
            for watchers in (0, 1)[:: 1 if turn % 2 == 0 else -1]:
                seen = asyncio.run(load(server.port, "/translate", bodies, 32, watchers))
                rates[watchers].append(seen["rate"] / (32 - watchers))
    finally:
        server.close()
    lost = [1 - b / a for a, b in zip(rates[0], rates[1], strict=True)]
    print(f"requests/s of a client: {median(rates[0]):.3f} unwatched, {median(rates[1]):.3f} beside one that watches")
    print(f"lost, by round: {', '.join(f'{one:.1%}' for one in lost)}; median {median(lost):.1%}")


def peer(given: argparse.Namespace) -> None:
    import uvicorn

    app = ctranslate2_app(Path(given.model), given.exported, given.to, given.threads)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    for name, help in (("translate", "beside CTranslate2"), ("generate", "beside transformers serve"),
                       ("watch", "what one watcher costs the others")):  # fmt: skip
        one = what.add_parser(name, help=help)
        one.add_argument("model")
        one.add_argument("texts", type=Path, help="a sentence or a prompt on each line")
        one.add_argument("--to", default="")
        one.add_argument("--beam", type=int, default=4)
        one.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 64])
        one.add_argument("--each", type=int, default=20, help="requests of each client")
        one.add_argument("--rounds", type=int, default=3)
        one.add_argument("--theirs", nargs="+", default=["1x2", "2x1"], help="CTranslate2: translators x threads")
        one.add_argument("--hf", help="the model's folder for transformers serve")
        one.add_argument("--tokens", type=int, default=32)
    one = what.add_parser("peer")
    one.add_argument("model")
    one.add_argument("--exported", type=Path)
    one.add_argument("--to", default="")
    one.add_argument("--threads")
    one.add_argument("--port", type=int)
    given = parser.parse_args()
    {"translate": translate, "generate": generate, "watch": watch, "peer": peer}[given.what](given)


if __name__ == "__main__":
    main()
