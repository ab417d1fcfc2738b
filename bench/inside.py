"""Looking inside: a layer × position patching sweep beside TransformerLens', and what watching everything costs.

    .venv/bin/python bench/inside.py                       # both tables on a quiet machine, about half an hour
    .venv/bin/python bench/inside.py --cpu-time            # on a busy one: one thread, and only its own time
    .venv/bin/python bench/inside.py --only watch
    .venv/bin/python bench/inside.py --agreement MODEL     # attribution patching beside the sweep that it estimates

GPT-2 124M with random weights, the same in both engines; TransformerLens 4's bridge around transformers' GPT-2 and its
own `get_act_patch_resid_pre`, under no_grad. It makes one whole pass for each cell, so that all its cells take the same
time: only every 4th (of long inputs every 20th) is computed, and counted 4 (20) times. Every round compares them.

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

LENGTHS = {24: 4, 100: 20}  # tokens → TransformerLens computes one of so many cells
RIGHT, WRONG = 318, 373


def clock() -> float:
    return time.process_time() if "BENCH_CPU_TIME" in os.environ else time.perf_counter()


def prompts(length: int) -> tuple[Any, Any]:
    """Two texts that differ everywhere, so that no cell is for nothing."""
    import torch

    ids = torch.randint(50257, (2, length), generator=torch.Generator().manual_seed(length))
    return ids[:1], ids[1:]


def ours(folder: str) -> Any:
    from cutaway.checkpoints import load
    from cutaway.inside.patching.metrics import LogitDifference
    from cutaway.inside.patching.sweep import patch_sweep

    net = load(Path(folder) / "ours")

    def run(length: int) -> Any:
        clean, corrupted = prompts(length)
        start = clock()
        found = patch_sweep(net, clean, corrupted, LogitDifference(RIGHT, WRONG))
        return clock() - start, found.values[..., 0].flatten()[:: LENGTHS[length]].tolist()

    return run


def theirs(folder: str) -> Any:
    import pandas
    import torch
    import transformers
    from transformer_lens import patching
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    net = transformers.AutoModelForCausalLM.from_pretrained(Path(folder) / "theirs").eval()
    bridge = build_bridge_from_module(
        net, "GPT2LMHeadModel", hf_config=net.config, device="cpu", dtype=torch.float32
    ).eval()
    patching.tqdm = lambda cells, **_: cells  # its bar

    def run(length: int) -> Any:
        clean, corrupted = prompts(length)
        every = LENGTHS[length]
        cells = [(layer, pos) for layer in range(12) for pos in range(length)][::every]
        table = pandas.DataFrame(cells, columns=["layer", "pos"])
        start = clock()
        with torch.no_grad():
            _, cache = bridge.run_with_cache(clean)
            kept = clock()  # once, however many cells follow
            found = patching.get_act_patch_resid_pre(
                bridge, corrupted, cache, lambda logits: logits[0, -1, RIGHT] - logits[0, -1, WRONG],
                index_axis_names=None, index_df=table,
            )  # fmt: skip
        return kept - start + (clock() - kept) * every, found.flatten().tolist()

    return run


def watched(folder: str) -> Any:
    """A plain pass and one that keeps every tap, in turn."""
    import torch

    from cutaway.checkpoints import load
    from cutaway.model.tap import watch

    net = load(Path(folder) / "ours")
    ids = torch.arange(8 * 128).view(8, 128)

    def run(passes: int) -> Any:
        times: tuple[list[float], list[float]] = ([], [])
        with torch.inference_mode():
            for number in range(passes + 1):
                for which in (0, 1) if number % 2 else (1, 0):
                    start = clock()
                    if which:
                        with watch(net, "*") as seen:
                            net(ids)
                        n = len(seen)
                        del seen
                    else:
                        net(ids)
                    times[which].append(clock() - start)
        return [statistics.median(its[1:]) for its in times], n

    return run


def serve(kind: str, folder: str) -> None:
    """Answers one JSON line for each that it reads."""
    import torch

    run = {"ours": ours, "theirs": theirs, "watched": watched}[kind](folder)
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def write_folders(folder: Path) -> None:
    from cutaway.checkpoints import export, save
    from cutaway.families import build

    net = build("gpt2", seed=0)
    save(net, folder / "ours")
    export(net, folder / "theirs")


def sweep_table(folder: str, lengths: list[int], rounds: int) -> None:
    workers = [Worker(__file__, name, folder) for name in ("ours", "theirs")]
    print(f"\nlayer × position sweep, {workers[0].hello}, {rounds} rounds in turn\n")
    print("| tokens | cells | cutaway | TransformerLens | theirs / ours | in single rounds | cells differ by |")
    print("|---|---|---|---|---|---|---|")
    for length in lengths:
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            answers = {which: workers[which].ask(length) for which in ((0, 1) if number % 2 else (1, 0))}
            for which, (seconds, _) in answers.items():
                times[which].append(seconds)
            worst = max(abs(a - b) for a, b in zip(answers[0][1], answers[1][1], strict=True))
            moved = max(answers[1][1]) - min(answers[1][1])
            if worst > 1e-4 or moved < 1e-2:
                raise SystemExit(f"the engines disagree by {worst}, where cells differ by {moved}")
        ratios = sorted(b / a for a, b in zip(*times, strict=True))
        a, b = map(statistics.median, times)
        within = f"{ratios[0]:.1f} … {ratios[-1]:.1f}"
        print(
            f"| {length} | {12 * length} | {a:.2f} s | {b:.2f} s | **{b / a:.1f}** | {within} | {worst:.1e} |",
            flush=True,
        )
    for worker in workers:
        worker.close()


def watch_table(folder: str, rounds: int) -> None:
    worker = Worker(__file__, "watched", folder)
    found = [worker.ask(3) for _ in range(rounds)]
    worker.close()
    plain, seen = (statistics.median(times[which] for times, _ in found) for which in (0, 1))
    ratios = sorted(b / a for (a, b), _ in found)
    print(f"\n| 8 × 128, {found[0][1]} taps | plain | watched | ratio | in single rounds |\n|---|---|---|---|---|")
    print(
        f"| GPT-2 124M | {plain:.2f} s | {seen:.2f} s | **{seen / plain:.3f}** | {ratios[0]:.3f} … {ratios[-1]:.3f} |"
    )


def agreement_table(path: str) -> None:
    """How well one backward pass estimates a sweep, on one pair of sentences that a trained model understands."""
    import torch

    from cutaway import load, load_tokenizer
    from cutaway.inside import LogitDifference, compare_sweeps, estimate_sweep, patch_sweep

    net, tokenizer = load(path), load_tokenizer(path)
    sentence = "When Mary and John went to the store, {} gave a drink to"
    clean, corrupted = (torch.tensor([tokenizer.encode(sentence.format(name))]) for name in ("John", "Mary"))
    metric = LogitDifference(tokenizer.encode(" Mary")[0], tokenizer.encode(" John")[0])
    print("\n| over | cells | clean | corrupted | sweep | estimate | Pearson | rank | same sign |")
    print("|---|---|---|---|---|---|---|---|---|")
    for over in ("residual", "heads", "attention", "feed_forward"):
        times = [clock()]
        found = patch_sweep(net, clean, corrupted, metric, over=over)
        times.append(clock())
        guess = estimate_sweep(net, clean, corrupted, metric, over=over)
        times.append(clock())
        shape, alike = " × ".join(map(str, found.effects.shape)), compare_sweeps(found, guess)
        print(f"| {over} | {shape} | {found.clean.item():.2f} | {found.corrupted.item():.2f} "
              f"| {times[1] - times[0]:.1f} s | {times[2] - times[1]:.1f} s "
              f"| {alike.pearson:.3f} | {alike.rank:.3f} | {alike.sign:.1%} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["sweep", "watch"])
    parser.add_argument("--lengths", type=int, nargs="+", choices=LENGTHS, default=list(LENGTHS))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, and its own time: on a busy machine")
    parser.add_argument("--agreement", metavar="MODEL", help="a trained model of English: only this table")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return serve(*args.worker)
    os.environ["OMP_NUM_THREADS"] = "1" if args.cpu_time else str(args.threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if args.cpu_time:
        os.environ["BENCH_CPU_TIME"] = "1"
    if args.agreement:
        return agreement_table(args.agreement)
    with tempfile.TemporaryDirectory() as folder:
        write_folders(Path(folder))
        if args.only != "watch":
            sweep_table(folder, args.lengths, args.rounds)
        if args.only != "sweep":
            watch_table(folder, args.rounds)


if __name__ == "__main__":
    main()
