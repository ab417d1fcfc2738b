"""Writing on a GPU with the same weights: ours and transformers, bfloat16, greedy and with a beam.

    python3 bench/decode_gpu.py                              # all cases
    python3 bench/decode_gpu.py --only gpt2-1 --engines cutaway --profile

GPT-2 124M goes on from 32 tokens with 256 more; Transformer base (6 + 6 blocks, d_model 512, 16,000 words) translates
48 tokens into 48. Each engine is a process of its own; they take turns. Nothing is compiled; the first call, which
records a step and loads kernels, is told apart.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

CASES = {  # model, texts at a time, beam, tokens before, tokens to write
    "gpt2-1": ("gpt2", 1, 1, 32, 256),
    "gpt2-64": ("gpt2", 64, 1, 32, 256),
    "base-1": ("base", 1, 1, 48, 48),
    "base-64": ("base", 64, 1, 48, 48),
    "base-64x4": ("base", 64, 4, 48, 48),
}
ENGINES = ("cutaway", "transformers")
VOCAB = 16000


def prepare(folder: Path) -> None:
    import torch

    from cutaway.checkpoints import export, save
    from cutaway.families import build

    gpt2 = build("gpt2", seed=0)
    base = build("transformer-base", seed=0, vocab_size=VOCAB, positions="sinusoidal_halves", pad_id=0, start_id=1, end_ids=(2,))  # noqa: E501  # fmt: skip
    with torch.no_grad():  # so that the likeliest word is not the one just read
        base.target_embedding.tokens.weight.normal_(0, VOCAB**-0.25 / 8)
    for name, model in (("gpt2", gpt2), ("base", base)):
        save(model.eval(), folder / name / "cutaway")
        export(model, folder / name / "transformers")


def writer(engine: str, folder: Path, name: str) -> Any:
    """A function from (texts, beam, tokens to write) to ids."""
    import torch

    if engine == "cutaway":
        from cutaway.checkpoints import load
        from cutaway.decoding import Job, run_jobs
        from cutaway.model.precision import with_precision

        model: Any = with_precision(load(folder / name / engine), "bf16").to("cuda")

        def ours(texts: list[list[int]], beam: int, n: int) -> list[list[int]]:
            jobs = [
                Job(prompt=text, limit=n) if name == "gpt2" else Job(prompt=[1], source=text, limit=n) for text in texts
            ]
            return [found[0].ids for found in run_jobs(model, jobs, beam=beam, end_ids=[])]

        return ours
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = transformers.AutoModelForCausalLM if name == "gpt2" else transformers.AutoModelForSeq2SeqLM
    net = kind.from_pretrained(folder / name / engine, dtype=torch.bfloat16).to("cuda").eval()

    def theirs(texts: list[list[int]], beam: int, n: int) -> list[list[int]]:
        ids = torch.tensor(texts, device="cuda")
        more = {} if name == "gpt2" else {"decoder_start_token_id": 1}
        end = net.config.vocab_size - 1
        settings = transformers.GenerationConfig(
            do_sample=False,
            num_beams=beam,
            max_new_tokens=n,
            min_new_tokens=n,
            pad_token_id=0,
            eos_token_id=end,
            **more,
        )
        with torch.inference_mode():
            out = net.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        return out[:, -n:].tolist()

    return theirs


def texts_for(case: str) -> list[list[int]]:
    import random

    _, rows, _, before, _ = CASES[case]
    draw = random.Random(0)
    return [[draw.randrange(3, VOCAB) for _ in range(before)] for _ in range(rows)]


def serve(engine: str, folder: Path, profile: bool) -> None:
    import torch

    writers: dict[str, Any] = {}
    for line in sys.stdin:
        case = json.loads(line)
        name, rows, beam, _, n = CASES[case]
        write = writers.setdefault(name, None) or writer(engine, folder, name)
        writers[name] = write
        texts, seconds = texts_for(case), []
        for _ in range(6):
            torch.cuda.synchronize()
            start = time.perf_counter()
            words = write(texts, beam, n)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        if profile:
            show(lambda: write(texts, beam, n))  # noqa: B023
        print(
            json.dumps({"rates": [rows * n / s for s in seconds[1:]], "first": seconds[0], "words": words}), flush=True
        )


def show(call: Any) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=60), file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--profile", action="store_true", help="where the GPU's time goes, to the standard error")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="the models, kept for the next time")
    asked = parser.parse_args()
    if asked.worker:
        return serve(asked.worker, asked.folder, asked.profile)
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        if not (folder / "base").exists():
            prepare(folder)
        measure(asked, folder)


def measure(asked: argparse.Namespace, folder: Path) -> None:
    workers = {}
    for name in asked.engines:
        command = [sys.executable, __file__, "--worker", name, "--folder", str(folder)]
        command += ["--profile"] if asked.profile else []
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for case in asked.only or CASES:
        rates: dict[str, list[float]] = {name: [] for name in workers}
        first, words = {}, {}
        for turn in range(asked.rounds):
            for name in list(workers)[:: 1 if turn % 2 else -1]:
                process = workers[name]
                process.stdin.write(json.dumps(case) + "\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                said = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                rates[name] += said["rates"]
                first.setdefault(name, said["first"])
                words[name] = said["words"]
        print(f"\n{case}: output tokens/s, medians of {len(next(iter(rates.values())))}")
        for name, found in rates.items():
            rate, other = statistics.median(found), statistics.median(rates[asked.engines[-1]])
            pairs = [(a, b) for x, y in zip(*words.values(), strict=True) for a, b in zip(x, y, strict=True)] if len(words) == 2 else []  # noqa: E501  # fmt: skip
            same = f"{sum(a == b for a, b in pairs) / len(pairs):.1%} of the words are the same" if pairs else ""
            step = CASES[case][1] / rate * 1e6
            print(
                f"  {name:14s} {rate:9,.0f}  {rate / other:6.1f} ×  {step:6.0f} µs a step  "
                f"{min(found):,.0f} … {max(found):,.0f}; first call {first[name]:.1f} s  {same}",
                flush=True,
            )
    for process in workers.values():
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()


if __name__ == "__main__":
    main()
