"""The eager forward pass beside transformers', and what building and loading cost, on the CPU.

    .venv/bin/python bench/forward.py                        # all tables, about ten minutes
    .venv/bin/python bench/forward.py --rounds 3 --only gpt2 # a first look
    .venv/bin/python bench/forward.py --only load            # or build, load, taps

How we measure stands in bench/README.md, what was measured in bench/RESULTS.md.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from worker import Worker

MODELS = {"gpt2": {}, "bert-base": {"task": "masked_language_model"}}
SHAPES = [(1, 128), (8, 128), (1, 512)]
TRANSFORMERS = {"gpt2": "AutoModelForCausalLM", "bert-base": "AutoModelForMaskedLM"}
AT_LEAST = 0.5  # seconds of passes in one measurement


# --- workers: one engine in a process of its own, which answers one JSON line for each that it reads -----------------


def engine(name: str, model: str, folder: str) -> Any:
    """The model as this engine's users load it, in eval mode."""
    if name == "cutaway":
        from cutaway.checkpoints import load

        return load(Path(folder) / "ours")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    net = getattr(transformers, TRANSFORMERS[model]).from_pretrained(Path(folder) / "theirs").eval()
    net.config.use_cache = False  # one pass needs no keys and values of earlier ones; ours keeps none either
    return net


def serve_passes(name: str, model: str, folder: str) -> None:
    """Reads a shape, runs the forward pass for a while, answers with seconds per pass."""
    import torch

    net = engine(name, model, folder)
    tell({"ready": name, "torch": torch.__version__, "threads": torch.get_num_threads()})
    for line in sys.stdin:
        batch, length = json.loads(line)
        ids = torch.arange(batch * length).view(batch, length) % 30000
        with torch.inference_mode():
            out = net(ids)
            seconds = passes(lambda ids=ids: net(ids))
        logits = out if name == "cutaway" else out.logits
        tell({"seconds": seconds, "some": logits[0, -1, :8].tolist(), "size": logits.abs().max().item()})


def passes(call: Any) -> float:
    """The median of as many passes as fit in half a second, at least three; the caller has warmed up."""
    clock = time.process_time if "BENCH_CPU_TIME" in os.environ else time.perf_counter
    took: list[float] = []
    while len(took) < 3 or sum(took) < AT_LEAST:
        start = clock()
        call()
        took.append(clock() - start)
    return statistics.median(took)


def build_once() -> None:
    """Seconds to build GPT-2 with new weights, in a fresh process, after `import torch`."""
    import torch  # noqa: F401

    from cutaway.families import build

    start = time.perf_counter()
    build("gpt2", seed=0)
    tell({"seconds": time.perf_counter() - start})


def load_once(name: str, folder: str) -> None:
    """Seconds and memory to load and run once; the pass looks at every weight, so that mapped pages are counted."""
    import torch

    if name == "transformers":
        import transformers
        from transformers import GPT2LMHeadModel  # noqa: F401
    else:
        import cutaway.checkpoints
    torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64))  # the library's own buffers
    before, start = peak_memory(), time.perf_counter()
    if name == "transformers":
        transformers.logging.disable_progress_bar()
        net: Any = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    else:
        net = cutaway.checkpoints.load(folder)
    seconds = time.perf_counter() - start
    loaded = peak_memory()
    with torch.inference_mode():
        net(torch.arange(8)[None])
    size = (Path(folder) / "model.safetensors").stat().st_size
    tell({"seconds": seconds, "loaded": (loaded - before) / size, "ran": (peak_memory() - before) / size})


def peak_memory() -> int:
    """The most memory that this process ever had resident, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def taps_once() -> None:
    """What a tap that nobody watches costs, times their number, as a share of the forward pass."""
    import torch

    from cutaway.families import build
    from cutaway.model import tap

    found = []
    for model, changes in MODELS.items():
        net = build(model, seed=0, **changes).eval()
        ids = torch.arange(128)[None]
        calls = count_calls(tap.Part, net, ids)  # which warms up
        seconds = {name: cost_of_a_call(tap.Part, name) for name in calls}
        with torch.inference_mode():
            forward = statistics.median(passes(lambda net=net, ids=ids: net(ids)) for _ in range(3))
        all_taps = sum(seconds[name] * n for name, n in calls.items())
        found.append(
            {"model": model, "calls": sum(calls.values()), "microseconds": 1e6 * all_taps, "share": all_taps / forward}
        )
    tell(found)


def count_calls(part: Any, net: Any, ids: Any) -> dict[str, int]:
    """How often a pass asks `tap`, `reads` and `edits`."""
    calls = dict.fromkeys(("tap", "reads", "edits"), 0)
    originals = {name: getattr(part, name) for name in calls}

    def counted(name: str) -> Any:
        def call(*args: Any) -> Any:
            calls[name] += 1
            return originals[name](*args)

        return call

    for name in calls:
        setattr(part, name, counted(name))
    net(ids)
    for name, original in originals.items():
        setattr(part, name, original)
    return calls


def cost_of_a_call(part: Any, name: str) -> float:
    """Seconds per call, without those of the loop itself."""
    import timeit

    import torch

    call = {"tap": "part.tap('x', x)", "reads": "part.reads('x', 'y')", "edits": "part.edits('x', 'y')"}[name]
    names = {"part": part(), "x": torch.ones(1)}
    n = 100_000
    return min(timeit.repeat(call, globals=names, number=n, repeat=5)) / n


def tell(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


# --- the parent: starts workers, asks them in turn, prints tables ----------------------------------------------------


def ask_once(*args: str) -> Any:
    worker = Worker(__file__, *args)
    worker.close()
    return worker.hello


def write_folders(model: str, folder: Path) -> None:
    """The same random weights twice: as we store them, and as transformers does."""
    from cutaway.checkpoints import export, save
    from cutaway.families import build

    net = build(model, seed=0, **MODELS[model])
    save(net, folder / "ours")
    export(net, folder / "theirs")


def forward_table(model: str, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_folders(model, Path(folder))
        workers = [Worker(__file__, "passes", name, model, folder) for name in ("cutaway", "transformers")]
        print(f"\n{model}, float32, {workers[0].hello['threads']} threads, torch {workers[0].hello['torch']}, "
              f"{rounds} rounds in turn\n")  # fmt: skip
        print("| batch × length | cutaway | transformers | cutaway / transformers | in single rounds |")
        print("|---|---|---|---|---|")
        for shape in SHAPES:
            times: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                answers = {i: workers[i].ask(shape) for i in order}
                for i, answer in answers.items():
                    times[i].append(answer["seconds"])
                same_numbers(answers[0], answers[1])
            ours, theirs = map(statistics.median, times)
            ratios = sorted(a / b for a, b in zip(*times, strict=True))
            print(f"| {shape[0]} × {shape[1]} | {1e3 * ours:.1f} ms | {1e3 * theirs:.1f} ms | **{ours / theirs:.3f}** "
                  f"| {ratios[0]:.3f} … {ratios[-1]:.3f} |", flush=True)  # fmt: skip
        for worker in workers:
            worker.close()


def same_numbers(ours: Any, theirs: Any) -> None:
    """A fast wrong answer is no answer."""
    worst = max(abs(a - b) for a, b in zip(ours["some"], theirs["some"], strict=True))
    if worst > 1e-4 * max(1.0, theirs["size"]):
        raise SystemExit(f"the engines disagree by {worst}")


def build_table(rounds: int) -> None:
    seconds = sorted(ask_once("build")["seconds"] for _ in range(rounds))
    print("\n| building GPT-2 124M | median | fastest … slowest |\n|---|---|---|")
    print(f"| seconds | **{statistics.median(seconds):.2f}** | {seconds[0]:.2f} … {seconds[-1]:.2f} |")


def load_table(rounds: int) -> None:
    print("\n| loading GPT-2 124M | seconds | peak / file size | after one pass |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_folders("gpt2", Path(folder))
        for title, engine_, name in (
            ("cutaway, our folder", "cutaway", "ours"),
            ("cutaway, Hugging Face folder", "cutaway", "theirs"),
            ("transformers, Hugging Face folder", "transformers", "theirs"),
        ):
            answers = [ask_once("load", engine_, str(Path(folder) / name)) for _ in range(rounds)]
            middle = {key: statistics.median(answer[key] for answer in answers) for key in answers[0]}
            print(
                f"| {title} | {middle['seconds']:.2f} | {middle['loaded']:.2f} | **{middle['ran']:.2f}** |", flush=True
            )


def taps_table() -> None:
    print("\n| unwatched taps, 1 × 128 | calls | together | share of the forward pass |\n|---|---|---|---|")
    for row in ask_once("taps"):
        print(f"| {row['model']} | {row['calls']} | {row['microseconds']:.0f} µs | **{row['share']:.3%}** |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each engine (default 7)")
    parser.add_argument("--only", choices=[*MODELS, "build", "load", "taps"], nargs="+", help="some of the tables")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, and its own time: on a busy machine")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        kind, *rest = args.worker
        {"passes": serve_passes, "build": build_once, "load": load_once, "taps": taps_once}[kind](*rest)
        return
    os.environ["OMP_NUM_THREADS"] = "1" if args.cpu_time else str(args.threads)
    if args.cpu_time:
        os.environ["BENCH_CPU_TIME"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    wanted = args.only or [*MODELS, "build", "load", "taps"]
    for model in MODELS:
        if model in wanted:
            forward_table(model, args.rounds)
    if "build" in wanted:
        build_table(args.rounds)
    if "load" in wanted:
        load_table(min(args.rounds, 5))
    if "taps" in wanted:
        taps_table()


if __name__ == "__main__":
    main()
