import pytest
import torch

from cutaway.families import build, config_of
from cutaway.inside.describe import describe, example_inputs


def requested(kind: str) -> int:
    """Bytes that were asked for, before the allocator rounds them up."""
    return torch.cuda.memory_stats()[f"requested_bytes.all.{kind}"]


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "transformer-base", "vit-b-16", "smollm2-135m"])
def test_the_gpu_keeps_what_describe_says(name):
    described = describe(config_of(name), batch=2, dtype=torch.bfloat16).memory
    model = build(name, device="cuda", dtype=torch.bfloat16).train()
    inputs = [torch.zeros_like(x, device="cuda") for x in example_inputs(model, 2, None, None)]
    model(*inputs)  # the libraries allocate workspaces of their own
    before = requested("current")
    output = model(*inputs)
    assert described.kept == pytest.approx(requested("current") - before, rel=0.01)
    del output
    model.eval()
    with torch.no_grad():
        model(*inputs)
        torch.cuda.reset_peak_memory_stats()
        before = requested("current")
        model(*inputs)
    assert described.peak == pytest.approx(requested("peak") - before, rel=0.01)
