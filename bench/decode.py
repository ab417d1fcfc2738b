"""Translating with the same weights: ours, CTranslate2 and transformers, on the CPU.

    .venv/bin/python bench/decode.py                       # all rows, about ten minutes
    .venv/bin/python bench/decode.py --rounds 2 --only 1x1 # a first look: one sentence, a beam of one

Transformer base (6 + 6 blocks, d_model 512, 16,000 words), sources of 24 tokens, answers of exactly 32. Each engine is
a process of its own; they take turns. The default path is the headline: nothing is compiled.
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

SOURCE, TARGET, VOCAB = 24, 32, 16000
CASES = {"32x4": (32, 4), "32x1": (32, 1), "1x1": (1, 1), "1x4": (1, 4)}  # sentences at a time × beam
ENGINES = ("cutaway fp32", "cutaway int8", "ctranslate2 fp32", "ctranslate2 int8", "transformers fp32")
AT_LEAST = 2.0  # seconds of translating in one measurement


def sentences(n: int) -> list[list[int]]:
    import random

    draw = random.Random(0)
    return [[draw.randrange(3, VOCAB) for _ in range(SOURCE)] for _ in range(n)]


def translator(name: str, folder: Path, threads: int) -> Any:
    """A function from (sentences, beam) to ids: as the engine's users call it."""
    kind = name.split()[1]
    if name.startswith("cutaway"):
        import torch

        from cutaway.checkpoints import load
        from cutaway.decoding import Job, run_jobs
        from cutaway.model.precision import with_precision

        torch.set_num_threads(threads)
        model: Any = with_precision(load(folder / "ours"), kind)  # type: ignore[arg-type]

        def ours(texts: list[list[int]], beam: int) -> list[list[int]]:
            jobs = [Job(prompt=[1], source=text, limit=TARGET) for text in texts]
            return [found[0].ids for found in run_jobs(model, jobs, beam=beam, end_ids=[])]

        return ours
    if name.startswith("ctranslate2"):
        import ctranslate2

        compute = {"fp32": "float32", "int8": "int8"}[kind]
        engine = ctranslate2.Translator(str(folder / compute), compute_type=compute, intra_threads=threads)

        def theirs(texts: list[list[int]], beam: int) -> list[list[int]]:
            words = [[str(id) for id in text] for text in texts]
            found = engine.translate_batch(
                words, beam_size=beam, max_decoding_length=TARGET, min_decoding_length=TARGET, max_batch_size=0
            )
            return [[int(word) for word in one.hypotheses[0]] for one in found]

        return theirs
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    net = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / "theirs").eval()

    def peers(texts: list[list[int]], beam: int) -> list[list[int]]:
        settings = transformers.GenerationConfig(
            do_sample=False, num_beams=beam, max_new_tokens=TARGET, min_new_tokens=TARGET,
            decoder_start_token_id=1, pad_token_id=0, eos_token_id=2,
        )  # fmt: skip
        with torch.inference_mode():
            return net.generate(torch.tensor(texts), generation_config=settings)[:, 1:].tolist()

    return peers


def serve(name: str, folder: Path, threads: int) -> None:
    translate = translator(name, folder, threads)
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        rows, beam = json.loads(line)
        texts = sentences(max(rows, 8))
        words = [answer for at in range(0, len(texts), rows) for answer in translate(texts[at : at + rows], beam)]
        n, start = 0, time.perf_counter()
        while time.perf_counter() - start < AT_LEAST or n < 2:
            at = n * rows % len(texts)
            translate(texts[at : at + rows], beam)
            n += 1
        seconds = time.perf_counter() - start
        print(json.dumps({"rate": n * rows * TARGET / seconds, "words": words}), flush=True)


def prepare(folder: Path) -> None:
    import torch

    from cutaway.checkpoints import export, save
    from cutaway.families import build

    model: Any = build(
        "transformer-base", seed=0, vocab_size=VOCAB, positions="sinusoidal_halves", pad_id=0, start_id=1, end_ids=(2,)
    ).eval()
    with torch.no_grad():  # so that the likeliest word is not the one just read
        model.target_embedding.tokens.weight.normal_(0, VOCAB**-0.25 / 8)
    save(model, folder / "ours")
    export(model, folder / "theirs")
    for compute in ("float32", "int8"):
        export(model, folder / compute, to="ctranslate2", quantization=compute)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        return serve(asked.worker, asked.folder, asked.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = asked.folder or Path(name)
        if not (folder / "ours").exists():
            prepare(folder)
        measure(asked, folder)


def tell(rates: dict[str, list[float]], words: dict[str, list[list[int]]]) -> None:
    """Of every engine: how fast, how many times as fast as each peer, and the share of words that equal the first's."""
    median = {name: statistics.median(values) for name, values in rates.items()}
    peers = [name for name in rates if not name.startswith("cutaway")]
    first = next(iter(rates))
    print(f"  {'':20s} {'':>8s}" + "".join(f"   × {peer:17s}" for peer in peers) + "   rounds; words of all sentences")
    for name, rate in median.items():
        beside = "".join(f"   {rate / median[peer]:<19.2f}" for peer in peers)
        pairs = [pair for a, b in zip(words[name], words[first], strict=True) for pair in zip(a, b, strict=True)]
        same = sum(a == b for a, b in pairs) / len(pairs)
        spread = f"{min(rates[name]):.0f} … {max(rates[name]):.0f}"
        print(f"  {name:20s} {rate:8.0f}{beside}   {spread}; {same:.1%} as {first}")


def measure(asked: argparse.Namespace, folder: Path) -> None:
    workers = {}
    for name in asked.engines:
        command = [sys.executable, __file__, "--worker", name, "--folder", str(folder), "--threads", str(asked.threads)]
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert workers[name].stdout.readline(), f"{name} did not start"  # type: ignore[union-attr]
    for case in asked.only or CASES:
        rates: dict[str, list[float]] = {name: [] for name in workers}
        words: dict[str, list[list[int]]] = {}
        for turn in range(asked.rounds):
            for name in list(workers)[:: 1 if turn % 2 else -1]:
                process = workers[name]
                process.stdin.write(json.dumps(CASES[case]) + "\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                said = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                rates[name].append(said["rate"])
                words[name] = said["words"]
        print(f"\n{CASES[case][0]} at a time, beam {CASES[case][1]}: output tokens/s (medians of {asked.rounds})")
        tell(rates, words)
    for process in workers.values():
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()


if __name__ == "__main__":
    main()
