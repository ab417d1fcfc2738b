"""How long a tuned lens takes to train, and how much closer it is to the last layer than the logit lens.

    python bench/tuned_lens.py build/models/books books.valid.txt.gz --steps 200 --out lens.safetensors

The text is cut into rows; the last sixteen are held out, and the KL of every layer is measured on them, in nats.
"""

import argparse
import gzip
import time
from pathlib import Path

import torch

from cutaway import load, load_tokenizer
from cutaway.inside.residual.tuned_lens import kl_by_layer, train_tuned_lens

HELD_OUT = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model, tokenizer = load(args.model), load_tokenizer(args.model)
    opened = gzip.open if args.text.suffix == ".gz" else open
    n_tokens = (args.steps * args.batch + HELD_OUT) * args.length
    with opened(args.text, "rt", encoding="utf-8") as file:
        text = file.read(8 * n_tokens)
    ids = torch.tensor(tokenizer.encode(text)[:n_tokens])
    rows = ids[: len(ids) // args.length * args.length].view(-1, args.length)
    held_out = [(some,) for some in rows[-HELD_OUT:].split(args.batch)]
    batches = [(some,) for some in rows[:-HELD_OUT].split(args.batch)][: args.steps]
    before, start = kl_by_layer(model, held_out), time.perf_counter()
    lens = train_tuned_lens(model, batches, rate=args.rate)
    minutes = (time.perf_counter() - start) / 60
    after = kl_by_layer(model, held_out, tuned=lens)
    print(f"{len(batches)} steps of {args.batch} × {args.length} tokens: {minutes:.1f} minutes")
    print(f"{'layer':28s} logit lens  tuned lens   KL to the last layer, nats per token, {HELD_OUT} rows held out")
    for layer, kl in before.items():
        print(f"{layer:28s} {kl:10.3f} {after[layer]:11.3f}")
    if args.out is not None:
        lens.save(args.out)


if __name__ == "__main__":
    main()
