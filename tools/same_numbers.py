"""What a refactor may not change: one line for each number or file that the same commands must give again.

    python tools/same_numbers.py > after.txt                       of this working tree
    PYTHONPATH=OTHER/src python tools/same_numbers.py > before.txt of another one
    diff before.txt after.txt

Three short trainings (a translator, a GPT with LoRA and EMA from `books`, a BERT), what their models answer, exports
byte for byte, scores of the bundled models, and every figure of `cutaway verify`. Only the command line is used, so
that names in Python may change. `--data` adds the scores on real data: a folder with `everyday-en-de` and `gutenberg`.
"""

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORDS = "the a my your old small cat dog bird house sees hears likes finds".split()

RECIPES: dict[str, dict[str, Any]] = {
    "translator": {
        "model": {"size": "transformer-tiny", "dropout": 0.1},
        "tokenizer": {"kind": "bpe", "vocab_size": 300},
        "data": {"train": ["pairs.tsv"], "valid_share": 0.1, "seq_len": 64},
        "objective": {"kind": "translate", "smoothing": 0.1},
        "train": {"steps": 40, "tokens": 1024, "average": 2},
        "schedule": {"kind": "inverse_sqrt", "warmup": 10},
        "checkpoint": {"every": 10, "keep": 3},
    },
    "gpt-lora-ema": {
        "model": {"start": "books"},
        "data": {"train": ["text.txt"], "valid_share": 0.1, "seq_len": 64},
        "objective": {"kind": "next_token"},
        "train": {"steps": 12, "tokens": 512, "lora_rank": 4, "ema": 0.9},
        "schedule": {"warmup": 3},
        "evaluate": {"every": 4},
    },
    "bert": {
        "model": {"size": "bert-tiny", "dropout": 0.1},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 400},
        "data": {"train": ["text.txt"], "valid_share": 0.1, "seq_len": 64},
        "objective": {"kind": "pretrain"},
        "train": {"steps": 40, "tokens": 1024, "accumulate": 2},
        "schedule": {"warmup": 10},
    },
}
ANSWERS = {
    "translator": ["translate", "the old cat sees my house", "--beam", "4", "--scores"],
    "gpt-lora-ema": ["generate", "Subject to", "--max-tokens", "20", "--temperature", "0.8", "--seed", "3"],
    "bert": ["fill", "the [MASK] of this License"],
}
FP32 = ["--precision", "fp32"]
BUNDLED = (
    ["translate", "I ate an apple. It is red.", "--model", "en-de", "--to", "de", "--nbest", "3", "--scores", *FP32],
    ["translate", "Ich habe einen Apfel gegessen.", "--model", "en-de", "--to", "en", "--align", *FP32],
    ["translate", "The dog barks.", "--model", "en-de", "--to", "de", "--term", "dog=Rüde", *FP32],
    ["generate", "The ship", "--model", "books", "--max-tokens", "30", *FP32],
    ["generate", "The ship", "--model", "books", "--max-tokens", "20", "--beam", "4", "--no-repeat-ngram", "3", *FP32],
    ["classify", f"{ROOT}/src/cutaway/bundled/digits/example.png", "--model", "digits", "--json"],
    ["lens", "books", "The ship sailed", "--json"],
    ["patch", "books", "Mary and John met. John spoke to", "Mary and John met. Mary spoke to", "--json"],
    ["inspect", "cloze", "The cat sat on the [MASK].", "--json"],
)  # fmt: skip
FORMATS = {"translator": ("ctranslate2",), "gpt-lora-ema": ("hf", "ctranslate2"), "bert": ("hf",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with everyday-en-de and gutenberg, for BLEU and bits")
    parser.add_argument("--sentences", type=int, default=300, help="of the test of everyday-en-de")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for what, value in numbers(Path(folder), options.data, options.sentences):
            print(f"{what}: {value}", flush=True)


def numbers(folder: Path, data: Path | None, sentences: int) -> Iterator[tuple[str, str]]:
    write_data(folder)
    for name, recipe in RECIPES.items():
        path = folder / f"{name}.toml"
        path.write_text(as_toml(recipe))
        run(folder, "train", path, "--out", name, "--deterministic")
        yield from files_of(folder / name, f"train {name}", ".safetensors", "tokenizer.json")
        command, *words = ANSWERS[name]
        yield f"{command} with {name}", digest(run(folder, command, *words, "--model", name))
        for kind in FORMATS[name]:
            run(folder, "export", name, f"{name}-{kind}", "--to", kind)
            yield from files_of(folder / f"{name}-{kind}", f"export {name} to {kind}")
        run(folder, "pack", name, f"{name}-packed")
        yield from files_of(folder / f"{name}-packed", f"pack {name}", ".safetensors", "config.json")
        yield from laws(run(folder, "verify", name, "--json"), name)
    for command in BUNDLED:
        yield f"cutaway {' '.join(command).replace(f'{ROOT}/', '')}", digest(run(folder, *command))
    for model in ("en-de", "books", "cloze", "digits"):
        yield from laws(run(folder, "verify", model, "--json"), model)
    if data is not None:
        data = data.resolve()
        pairs = data / "everyday-en-de/test.tatoeba-v2020-07-28.en-de.tsv.gz"
        columns = ("--header", "en,de", "--source-column", "en", "--target-column", "de", "--to", "de")
        for precision in ("float32", "int8"):
            said = run(
                folder, "evaluate", "en-de", pairs, *columns, "--limit", sentences, "--dtype", precision, "--json"
            )
            yield f"BLEU of en-de, {precision}", scores(said)
        (folder / "books.txt").write_text(read_start(data / "gutenberg/books.valid.txt.gz", 200_000))
        yield "bits of books", scores(run(folder, "evaluate", "books", "books.txt", "--json"))


def write_data(folder: Path) -> None:
    """A text that every version of the project has had, and pairs whose target is the source turned round."""
    (folder / "text.txt").write_text((ROOT / "LICENSE").read_text().replace("\n\n", "\n") * 2)
    draw = random.Random(1)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(1500)]
    rows = [f"{line}\t{' '.join(reversed(line.split()))}" for line in lines]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")


def as_toml(recipe: dict[str, Any]) -> str:
    return "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in recipe.items()
    )


def run(folder: Path, *words: object) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUTAWAY_CACHE": str(folder / "cache"), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "cutaway", *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"cutaway {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def files_of(folder: Path, what: str, *ends: str) -> Iterator[tuple[str, str]]:
    """The SHA-256 of each file, of all or of those with these ends; not of what names a date."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        dated = inside.name in ("README.md", "certificate.json", "certificate.md") or inside.parts[0] == "run"
        if path.is_file() and not dated and (not ends or path.name.endswith(ends)):
            yield f"{what}, {inside}", hashlib.sha256(path.read_bytes()).hexdigest()


def digest(said: str) -> str:
    said = re.sub(r'"[^"]*/src/cutaway/', '"', said)  # where this tree lies
    return hashlib.sha256(said.encode()).hexdigest()[:16] + " " + " ".join(said.split())[:60]


def laws(said: str, model: str) -> Iterator[tuple[str, str]]:
    """Each law with its figures, without their wording."""
    for entry in json.loads(said)["entries"]:
        figures = [entry[name] for name in ("verdict", "value", "tolerance", "agreement")]
        yield f"verify {model}, {entry['law']}", json.dumps(figures)


def scores(said: str) -> str:
    found = json.loads(said)
    return json.dumps({name: found[name] for name in sorted(found) if name in ("scores", "score", "metrics")} or found)


def read_start(path: Path, n: int) -> str:
    import gzip

    with gzip.open(path, "rt", encoding="utf-8") as text:
        return text.read(n)


if __name__ == "__main__":
    main()
