"""What `describe` says of memory is what a GPU keeps. No pytest here: see run.py."""

import torch

from cutaway.families import build, config_of
from cutaway.inside.description import describe, example_inputs

SIZES = ("gpt2", "bert-base", "transformer-base", "vit-b-16", "smollm2-135m")


def requested(kind: str) -> int:
    """Bytes that were asked for, before the allocator rounds them up."""
    return torch.cuda.memory_stats()[f"requested_bytes.all.{kind}"]


def near(said: int, measured: int) -> bool:
    return abs(said - measured) <= 0.01 * measured


def test_the_gpu_keeps_what_describe_says() -> None:
    for name in SIZES:
        described = describe(config_of(name), batch=2, dtype=torch.bfloat16).memory
        model = build(name, device="cuda", dtype=torch.bfloat16).train()
        inputs = [torch.zeros_like(x, device="cuda") for x in example_inputs(model, 2, None, None)]
        model(*inputs)  # the libraries allocate workspaces of their own
        before = requested("current")
        output = model(*inputs)
        assert near(described.kept, requested("current") - before), name
        del output


def test_the_gpu_peaks_where_describe_says() -> None:
    for name in SIZES:
        described = describe(config_of(name), batch=2, dtype=torch.bfloat16).memory
        model = build(name, device="cuda", dtype=torch.bfloat16).eval()
        inputs = [torch.zeros_like(x, device="cuda") for x in example_inputs(model, 2, None, None)]
        with torch.no_grad():
            model(*inputs)
            torch.cuda.reset_peak_memory_stats()
            before = requested("current")
            model(*inputs)
        assert near(described.peak, requested("peak") - before), name
