"""Broken models, each of which `verify` must fail, and sound ones, each of which it must pass.

A broken model is a tiny one with a single mistake (`breaks`). The same model without its mistake must pass, or its
failing would say nothing. Sound ones are of all families, tasks and precisions, with odd widths and lengths.

The table tells apart what `verify` says: a law failed by what it measured, one broke off with an error, or the model
was refused. All of them end the command with an exit code that is not 0.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

os.environ |= {"OMP_NUM_THREADS": "1", "CUTAWAY_TYPECHECK": "0", "TOKENIZERS_PARALLELISM": "false"}

from campaign import breaks_caches, breaks_numbers, breaks_weights, breaks_writing
from campaign.breaks import BREAKS, Break

_ = breaks_caches, breaks_numbers, breaks_weights, breaks_writing  # each lists its own
CLASSES = {"task": "classify", "n_classes": 3}
TAGS = {"task": "tag", "n_classes": 5}


class Sound(NamedTuple):
    """A model in which nothing is wrong."""

    family: str
    changes: dict[str, Any] = {}
    precision: str = "fp32"

    def __str__(self) -> str:
        numbers = ", ".join(f"{name}={value}" for name, value in self.changes.items())
        return f"{self.family}{f' ({numbers})' if numbers else ''} in {self.precision}"


SOUND = [
    *[Sound("gpt2", changes) for changes in ({}, {"max_len": 300}, CLASSES, {"task": "hidden"}, {"tied": False})],
    Sound("gpt2", {"n_layers": 1, "d_model": 20, "n_heads": 5, "d_ff": 33}),
    Sound("gpt2", {"max_len": 96, "end_ids": [0, 7, 11], "start_id": 7}),
    *[Sound("gpt2", {"max_len": n}, "int8") for n in (64, 200)],
    *[Sound("gpt", changes) for changes in ({}, {"max_len": 150, "d_ff": 96}, {"task": "regress"})],
    *[Sound("gpt", {"norm_eps": 1e-3, "tied": False}, "int8"), Sound("gpt", {"d_model": 36, "n_heads": 3})],
    *[Sound("llama", changes) for changes in ({}, {"max_len": 256, "tied": False}, CLASSES, {"rotary_base": 500.0})],
    Sound("llama", {"max_len": 128, "rotary_scaling": "linear", "rotary_scaling_numbers": [4.0]}),
    *[Sound("llama", {"max_len": n, "attention_bias": True}, "int8") for n in (64, 160)],
    *[Sound("llama-window", {"max_len": n, "window": w}) for n, w in ((64, 1), (100, 17), (256, 64), (64, 200))],
    Sound("llama-window", {"max_len": 96, "window": 9, "n_kv_heads": 4}, "int8"),
    *[Sound("bert", changes) for changes in ({}, CLASSES, TAGS, {"task": "pretrain", "max_len": 200})],
    *[Sound("bert", {"pooling": "mean", **CLASSES}), Sound("bert", {"task": "next_sentence", "n_segments": 3})],
    *[Sound("bert", changes, "int8") for changes in ({"max_len": 130}, CLASSES)],
    *[Sound("roberta", changes) for changes in ({}, TAGS, {"task": "regress"}, {"max_len": 140, "d_model": 28})],
    Sound("roberta", {"task": "hidden"}, "int8"),
    *[Sound("roformer", changes) for changes in ({}, {"max_len": 222}, CLASSES, {"d_model": 40, "n_heads": 5})],
    Sound("roformer", {"max_len": 96}, "int8"),
    *[Sound("transformer", changes) for changes in ({}, {"max_len": 128}, {"source_vocab_size": 70}, {"tied": False})],
    *[Sound("transformer", {"positions": name, "start_id": 1}) for name in ("sinusoidal_halves", "learned", "none")],
    Sound("transformer", {"n_decoder_heads": 6, "decoder_d_ff": 31, "output_bias": True}),
    *[Sound("transformer", {"max_len": 100}, "int8"), Sound("transformer-rotary", {"max_len": 100}, "int8")],
    *[Sound("transformer-pre-norm", changes) for changes in ({}, {"d_model": 32, "max_len": 64}, {"end_ids": [2]})],
    *[Sound("transformer-rotary"), Sound("transformer-rotary", {"max_len": 200})],
    *[Sound("t5", changes) for changes in ({}, {"gated": True, "tied": False}, {"n_buckets": 8, "max_distance": 20})],
    *[Sound("t5", {}, "int8"), Sound("t5", {"task": "hidden"})],
    *[Sound("vit", changes) for changes in ({}, {"task": "hidden"}, {"image_size": 12, "n_channels": 1})],
    Sound("vit", {"d_model": 30, "n_heads": 5, "task": "regress", "n_classes": None}, "int8"),
    *[Sound("lstm"), Sound("lstm", CLASSES), Sound("lstm", {"tied": False, "d_model": 17}, "int8")],
    *[Sound("lstm-translator"), Sound("lstm-translator", {"n_encoder_layers": 1, "d_model": 18})],
]


def run(seed: int = 0, only: str = "") -> int:
    """All models whose names have `only` in them; the number of those that were judged wrongly."""
    import torch

    torch.set_num_threads(1)
    began, fates, wrong = time.monotonic(), dict[str, Counter[str]](), Counter[str]()
    for area, model, broken in everything():
        said = f"{model}{f': {broken.said}' if broken else ''}"
        if only in f"{area}: {said}":
            fate, why = judged(model, seed, broken)
            fates.setdefault(area, Counter())[fate] += 1
            if (fate == "passed") is (broken is not None):
                wrong[area] += 1
                print(f"FAILS: {area}: {said}: {fate} {why}", flush=True)
    print(f"\n{'area':28s} {'tries':>5s} {'failed':>6s}  what verify says")
    for area, its in fates.items():
        told = ", ".join(f"{fate} {n}" for fate, n in its.most_common())
        print(f"{area:28s} {its.total():5d} {wrong[area]:6d}  {told}")
    tries = sum(its.total() for its in fates.values())
    print(f"{tries} models in {time.monotonic() - began:.0f} s, {wrong.total()} failed")
    return wrong.total()


def everything() -> Iterator[tuple[str, Sound, Break | None]]:
    """Broken models, sound ones, and the broken ones without what is wrong with them, each once."""
    seen: list[Sound] = []
    for broken in BREAKS:
        yield f"broken: {broken.area}", Sound(*broken[2:5]), broken
    yield from (("sound", model, None) for model in SOUND)
    for broken in BREAKS:
        model = Sound(*broken[2:5])
        if model not in seen:
            seen.append(model)
            yield "sound: without its break", model, None


def judged(model: Sound, seed: int, broken: Break | None = None) -> tuple[str, str]:
    """What `verify` says of a model (a law failed, one broke off, it was refused, or all passed), and of which laws."""
    import torch
    from helpers.tiny_models import tiny

    from cutaway import verify
    from cutaway.errors import CutawayError
    from cutaway.model.precision import with_precision

    torch.manual_seed(seed)
    built = with_precision(tiny(model.family, dtype=torch.float32, seed=seed, **model.changes), model.precision)
    with nullcontext() if broken is None else broken.do(built):
        try:
            certificate = verify(built, tokenizer=getattr(built, "tokenizer", None), seed=seed, quick=True)
        except CutawayError as error:
            return "refused", str(error)
    for verdict, fate in (("failed", "failed"), ("error", "broke off")):
        if laws := [
            f"{entry.law} {entry.why or entry.value}" for entry in certificate.entries if entry.verdict == verdict
        ]:
            return fate, "; ".join(laws)
    return "passed" if certificate.passed else "not passed", ""
