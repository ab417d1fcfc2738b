"""Training: tokens per second of a whole step (forward, backward, clip, AdamW), beside transformers and nn.Transformer.

    python bench/train.py gpt2 --peers         # a GPU: GPT-2 124M, 32 × 1024 tokens, bfloat16
    python bench/train.py translate --peers    # a GPU: Transformer base, 512 × (48 + 48) tokens, bfloat16
    python bench/train.py lengths --peers      # a GPU: Transformer base, real sentence lengths, 16 k places a batch
    python bench/train.py cpu --peers          # Transformer base, 32 × (32 + 32) tokens, float32

Every engine is a process of its own. On a GPU all of them warm up (and compile) at the same time, those of several
tasks too; then they are asked in turn. `compiled` compiles the blocks, `captured` replays the passes besides, `whole`
compiles the whole loss. `--profile FILE` adds where the time goes.
`lengths` reads carry/lengths.npy, or makes it from ../shared/data. How we measure stands in bench/README.md, what was
measured in bench/RESULTS.md.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
LENGTHS = ROOT / "carry" / "lengths.npy"


@dataclass(frozen=True)
class Task:
    """What is trained, on batches of what shape."""

    about: str
    vocab_size: int
    dropout: float
    tokens: int  # places of a step
    length: int = 0  # of every sequence; 0: real lengths
    device: str = "cuda"
    steps: int = 20  # of one measurement


TASKS = {
    "gpt2": Task("GPT-2 124M, 32 × 1024, bfloat16, dropout 0", 50257, 0.0, 32 * 1024, 1024),
    "translate": Task("Transformer base, 512 × (48 + 48), bfloat16, dropout 0.1", 16000, 0.1, 512 * 96, 48, steps=40),
    "lengths": Task(
        "Transformer base, real lengths, 16,384 places, bfloat16, dropout 0.1", 16000, 0.1, 16384, steps=167
    ),
    "cpu": Task("Transformer base, 32 × (32 + 32), float32, dropout 0.1", 16000, 0.1, 32 * 64, 32, "cpu", steps=1),
}
ENGINES = {
    "gpt2": ["cutaway", "cutaway captured", "cutaway whole captured"],
    "translate": ["cutaway", "cutaway captured", "cutaway whole captured"],
    "lengths": ["cutaway", "cutaway captured", "cutaway captured finer"],
    "cpu": ["cutaway", "cutaway compiled"],
}
PEERS = {
    "gpt2": ["transformers", "transformers compiled"],
    "translate": ["transformers", "transformers compiled", "nn.Transformer", "nn.Transformer compiled"],
    "lengths": ["transformers"],
    "cpu": ["transformers", "nn.Transformer"],
}


# --- batches: the same ones for every engine -------------------------------------------------------------------------


class Texts:
    """Sequences of random tokens with these lengths: how fast a step is does not depend on what is written."""

    def __init__(self, lengths: Any, vocab_size: int, seed: int) -> None:
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.ids = np.random.default_rng(seed).integers(3, vocab_size, self.starts[-1], dtype=np.uint16)

    def __len__(self) -> int:
        return len(self.starts) - 1


FINER = (4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256)  # widths of `finer`


def feed_of(task: Task, how: str = "") -> Any:
    """Batches as training makes them: ahead of time, in other threads."""
    from cutaway.data import buckets
    from cutaway.data.batches import Examples, Windows
    from cutaway.objectives.next_token import NextToken
    from cutaway.objectives.translation import Translation
    from cutaway.training.feed import Feed

    if "finer" in how:
        buckets.LADDER = FINER
    if task.vocab_size > 50000:
        text = Texts([64 * task.tokens], task.vocab_size, 0)
        windows = Windows(text, rows=task.tokens // task.length, seq_len=task.length)
        return Feed(windows, NextToken(), seed=0, device=task.device)
    length = real_lengths() if not task.length else np.full((64 * task.tokens // task.length, 2), task.length - 1)
    columns = {name: Texts(length[:, i], task.vocab_size, i) for i, name in enumerate(("source", "target"))}
    objective = Translation(start_id=1, end_id=2, smoothing=0.1)
    shapes = 16 if "finer" in how else 12
    longest = {"source": 64, "target": 64}  # one pair in 1,400 is cut
    source = Examples(columns, tokens=task.tokens, extra=objective.extra, longest=longest, most_shapes=shapes)
    return Feed(source, objective, seed=0, device=task.device, workers=2)


def real_lengths() -> Any:
    """(source, target) lengths of everyday-en-de and bcontrast in a byte-level BPE of 16,000 tokens."""
    if not LENGTHS.exists():
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        pairs: list[list[str]] = []
        for name in ("everyday-en-de/train.tatoeba.en-de.tsv.gz", "bcontrast/train+dev.en-de.tsv.gz"):
            with gzip.open(ROOT.parent / "shared" / "data" / name, "rt", encoding="utf-8") as file:
                pairs += [line.rstrip("\n").split("\t")[:2] for line in file]
        bpe = Tokenizer(models.BPE())
        bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<pad>", "<sos>", "<eos>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=16000, special_tokens=special, initial_alphabet=alphabet)
        bpe.train_from_iterator((text for pair in pairs for text in pair), trainer)
        sides = [[len(found.ids) for found in bpe.encode_batch([pair[i] for pair in pairs])] for i in (0, 1)]
        LENGTHS.parent.mkdir(exist_ok=True)
        np.save(LENGTHS, np.array(sides, dtype=np.int16).T)
    return np.load(LENGTHS).astype(np.int64)


# --- engines ---------------------------------------------------------------------------------------------------------


def ours(task: Task, how: str) -> Callable[[Any], Any]:
    """Our own step, as `cutaway train` takes it."""
    import torch

    from cutaway.families import build
    from cutaway.objectives.next_token import NextToken
    from cutaway.objectives.translation import Translation
    from cutaway.training.compile import compile_blocks
    from cutaway.training.cuda_graphs import Captured
    from cutaway.training.loop import Run, loss_function, take_step
    from cutaway.training.optimizer import Optimizer
    from cutaway.training.recipe import OptimizerPart

    translates = task.vocab_size < 50000
    size = "transformer-base" if translates else "gpt2"
    model = build(size, seed=0, vocab_size=task.vocab_size, dropout=task.dropout, device=task.device).train()
    objective = Translation(start_id=1, end_id=2, smoothing=0.1) if translates else NextToken()
    loss_of = loss_function(objective)
    autocast = None if task.device == "cpu" else torch.bfloat16
    if "whole" in how:
        loss_of = torch.compile(loss_of, dynamic=False)
    elif how:
        compile_blocks(model)
    run = Run(model, objective, Optimizer(model, OptimizerPart(rate=1e-4)), loss_of, autocast=autocast)
    if "captured" in how:
        run.captured = Captured(model, loss_of, autocast)

    return lambda batch: take_step(run, batch, 1.0).terms.sum()


def peer(task: Task, name: str, how: str) -> Callable[[Any], Any]:
    """A peer's model in the same kind of step."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    if name == "nn.Transformer":
        model, forward = plain_transformer(task)
    else:
        model, forward = hugging_face(task)
    model = model.to(task.device).train()
    smoothing = 0.0 if task.vocab_size > 50000 else 0.1

    def loss_of(part: Any) -> Any:
        logits = forward(model, part).flatten(0, 1)
        return F.cross_entropy(logits, part["targets"].flatten(), ignore_index=-100, label_smoothing=smoothing)

    if how:
        loss_of = torch.compile(loss_of, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(batch: Any) -> Any:
        (part,) = batch.parts
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(task.device, torch.bfloat16, enabled=task.device != "cpu"):
            loss = loss_of(part)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        return loss.detach()

    return step


def seen(real: Any) -> Any:
    """Empty rows, which fill a bucket's last batch up, get a token to look at: looking nowhere is NaN in the peers."""
    import torch

    return torch.cat([torch.ones_like(real[:, :1]), real[:, 1:]], dim=1)


def hugging_face(task: Task) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    if task.vocab_size > 50000:
        config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        net: Any = transformers.GPT2LMHeadModel(config)
        return net, lambda net, part: net(part["ids"], use_cache=False).logits
    config = transformers.MarianConfig(
        vocab_size=task.vocab_size, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="relu",
        dropout=task.dropout, scale_embedding=True, pad_token_id=0, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip

    def forward(net: Any, part: Any) -> Any:
        mask = None if task.length else seen(part["source_real"])  # without padding it does without
        return net(part["source"], attention_mask=mask, decoder_input_ids=part["ids"], use_cache=False).logits

    return transformers.MarianMTModel(config), forward


def plain_transformer(task: Task) -> Any:
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(task.vocab_size, 512)
            nn.init.normal_(self.words.weight, std=512**-0.5)
            self.body = nn.Transformer(512, 8, 6, 6, 2048, task.dropout, batch_first=True)
            self.register_buffer("places", torch.randn(1024, 512) * 0.1)
            self.dropout = nn.Dropout(task.dropout)

        def put(self, ids: Any) -> Any:
            return self.dropout(self.words(ids) * 512**0.5 + self.places[: ids.shape[1]])

        def forward(self, source: Any, ids: Any, hidden: Any) -> Any:
            future = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], ids.device, torch.bool)
            out = self.body(
                self.put(source), self.put(ids), tgt_mask=future, tgt_is_causal=True,
                src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
            )  # fmt: skip
            return F.linear(out, self.words.weight)

    def forward(net: Any, part: Any) -> Any:
        return net(part["source"], part["ids"], None if task.length else ~seen(part["source_real"]))

    return Net(), forward


def operations(task: Task, source: int, target: int) -> float:
    """Floating-point operations of a step's products, forwards and backwards; attention over the whole square."""
    if task.vocab_size > 50000:
        return 6.0 * target * (12 * 12 * 768**2 + task.vocab_size * 768 + 2 * 12 * task.length * 768)
    width = task.length or 16
    encoder, decoder = 6 * 12 * 512**2, 6 * 16 * 512**2
    cross = 6 * 2 * 512**2  # keys and values are made from the source
    products = source * (encoder + cross) + target * (decoder - cross + task.vocab_size * 512)
    return 6.0 * (products + 2 * width * 512 * (6 * source + 12 * target))


# --- workers: one engine in a process of its own ---------------------------------------------------------------------


def serve(name: str, engine: str) -> None:
    """Warms up, says so, and answers each line with a measurement, or a profile."""
    import torch

    task = TASKS[name]
    kind, _, how = engine.partition(" ")
    begun = time.perf_counter()
    feed = feed_of(task, how)
    step = ours(task, how) if kind == "cutaway" else peer(task, kind, how)
    with ExitStack() as stack:
        batches = stack.enter_context(feed.ahead(0, 1 << 40))
        for batch in warming_up(feed, task):
            loss = step(batch)
        first = loss.item()
        ready = time.perf_counter() - begun
        tell({"ready": ready, "loss": first, "torch": torch.__version__, "threads": torch.get_num_threads()})
        for line in sys.stdin:
            question = json.loads(line)
            if "profile" in question:
                tell(profile(step, batches, question["profile"], f"{name}: {engine}"))
            else:
                tell(measure(step, batches, task, question["steps"]))


def profile(step: Any, batches: Iterator[Any], file: str, title: str, n: int = 5) -> Any:
    """Appends the kernels of a step to a file, the slowest first."""
    import torch
    from torch.profiler import ProfilerActivity

    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(n):
            step(next(batches))
        torch.cuda.synchronize()
    kernels: dict[str, tuple[int, float]] = {}
    for event in found.events():
        count, took = kernels.get(event.name, (0, 0.0))
        kernels[event.name] = (count + 1, took + event.device_time)
    total = sum(took for _, took in kernels.values()) / n / 1e3
    with Path(file).open("a") as out:
        print(f"\n{title}: {total:.2f} ms a step, {sum(c for c, _ in kernels.values()) / n:.0f} kernels", file=out)
        for kernel, (count, took) in sorted(kernels.items(), key=lambda item: -item[1][1])[:45]:
            each = f"{took / n / 1e3:8.3f} ms {count / n:6.1f} × {took / count:8.1f} µs"
            print(f"{each}  {kernel[:110]}", file=out)
    return {"milliseconds": total}


def warming_up(feed: Any, task: Task) -> Iterator[Any]:
    """Batches enough for compiling and recording: three of each shape, first two that have no number in common."""
    if task.length:
        yield from (feed.on_device(feed.make(i)) for i in range(1 if task.device == "cpu" else 4))
        return
    of_shape: dict[Any, list[int]] = {}
    for i in range(feed.source.steps):
        of_shape.setdefault(feed.source.buckets.rows_of(i)[0].widths, []).append(i)
    order = sorted(of_shape.items())
    uneven = [item for item in order if item[0][0] != item[0][1]]
    for _, steps in [uneven[0], uneven[-1], *order]:
        yield from (feed.on_device(feed.make(i)) for i in (steps * 3)[:3])


def measure(step: Any, batches: Iterator[Any], task: Task, n: int) -> dict[str, float]:
    import torch

    on_gpu = task.device == "cuda"
    tokens, places, flops = 0, 0, 0.0
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(n):
        batch = next(batches)
        loss = step(batch)
        (part,) = batch.parts
        source = part["source"].numel() if "source" in part else 0
        tokens, places = tokens + batch.tokens, places + source + part["ids"].numel()
        flops += operations(task, source, part["ids"].numel())
    last = loss.item()  # waits for the device
    seconds = time.perf_counter() - start
    memory = torch.cuda.max_memory_reserved() if on_gpu else 0  # graphs have memory of their own
    return {"seconds": seconds / n, "tokens": tokens / seconds, "places": places / seconds, "flops": flops / seconds,
            "memory": memory, "loss": last}  # fmt: skip


def tell(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


# --- the parent: starts workers, asks them in turn, prints a table ---------------------------------------------------


class Worker:
    """A process that stays alive between questions, idle while the others are asked."""

    def __init__(self, task: str, engine: str) -> None:
        self.task, self.engine, self.answers = task, engine, []  # type: str, str, list[Any]
        command = [sys.executable, __file__, task, "--worker", engine]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hello: Any = None
        self.greeting = threading.Thread(target=self._greet, daemon=True)
        self.greeting.start()

    def _greet(self) -> None:
        self.hello = self.listen()

    def listen(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return None

    def ask(self, question: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return self.listen()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def compare(wanted: list[tuple[str, str]], args: argparse.Namespace) -> None:
    """Asks every engine of every task in turn, and prints a table for each task."""
    workers = []
    deadline = time.monotonic() + args.patience
    for task, engine in wanted:
        workers.append(Worker(task, engine))
        if TASKS[task].device == "cpu":  # two that warm up together take ten times as long
            workers[-1].greeting.join()
    for worker in workers:
        worker.greeting.join(max(0.0, deadline - time.monotonic()))
        if worker.hello is None:
            worker.process.kill()
    alive = [worker for worker in workers if worker.hello]
    rounds = args.rounds or (5 if TASKS[wanted[0][0]].device == "cpu" else 3)
    for number in range(rounds):
        for worker in alive if number % 2 == 0 else reversed(alive):
            worker.answers.append(worker.ask({"steps": args.steps or TASKS[worker.task].steps}))
    for name in dict(wanted):
        table(TASKS[name], [worker for worker in workers if worker.task == name])
    for worker in alive:
        if args.profile and worker.engine.startswith("cutaway "):
            worker.ask({"profile": args.profile})
        worker.close()


def table(task: Task, workers: list[Worker]) -> None:
    said: Any = next((worker.hello for worker in workers if worker.hello), {})
    print(f"\n{task.about}; torch {said.get('torch')}, {said.get('threads')} CPU threads\n")
    print("| | tokens/s | in single rounds | places/s | ms a step | TFLOP/s | memory | ready after |")
    print("|---|---|---|---|---|---|---|---|")
    for worker in workers:
        if not worker.hello or None in worker.answers:
            print(f"| {worker.engine} | failed | | | | | | |")
            continue
        middle = {key: statistics.median(answer[key] for answer in worker.answers) for key in worker.answers[0]}
        speeds = sorted(answer["tokens"] for answer in worker.answers)
        if not math.isfinite(middle["loss"]):
            raise SystemExit(f"{worker.engine} has no finite loss")
        memory = f"{middle['memory'] / 2**30:.1f} GiB" if middle["memory"] else ""
        print(f"| {worker.engine} | **{middle['tokens']:,.0f}** | {speeds[0]:,.0f} … {speeds[-1]:,.0f} "
              f"| {middle['places']:,.0f} | {1e3 * middle['seconds']:.2f} | {middle['flops'] / 1e12:.3g} | {memory} "
              f"| {worker.hello['ready']:.0f} s |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS, nargs="+")
    parser.add_argument("--peers", action="store_true", help="transformers and nn.Transformer in the same run")
    parser.add_argument("--steps", type=int, help="steps of one measurement")
    parser.add_argument("--rounds", type=int, help="measurements of each engine (default 3; on the CPU 5)")
    parser.add_argument("--only", nargs="+", help="some of the engines")
    parser.add_argument("--patience", type=float, default=1800, help="seconds until an engine has to be ready")
    parser.add_argument("--profile", help="a file that gets the kernels of our compiled engines")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="on the CPU; default: all")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve(args.task[0], args.worker)
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if TASKS[args.task[0]].device == "cpu":
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    wanted = []
    for name in args.task:
        engines = args.only or ENGINES[name] + (PEERS[name] if args.peers else [])
        wanted += [(name, engine) for engine in engines]
    compare(wanted, args)


if __name__ == "__main__":
    main()
