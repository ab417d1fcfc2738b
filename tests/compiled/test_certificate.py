"""The certificate's line for torch.compile, where the code runs as users run it."""

from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from torch import Tensor

from cutaway.certificate import laws
from cutaway.certificate.entry import TOLERANCE, Entry, judge
from cutaway.certificate.inputs import short_inputs
from cutaway.certificate.subject import Subject
from cutaway.model.blocks import Block
from cutaway.model.feed_forward import FeedForward


def compiled(name: str) -> Entry:
    model = tiny(name, dtype=torch.float32)
    with Subject(model, short_inputs(model, None, 0)) as subject:
        entry = judge("compiled = eager", lambda: laws.compiled_is_eager(subject))
    assert all("forward" not in vars(part) for part in model.modules() if isinstance(part, Block))
    return entry


def test_a_compiled_model_passes() -> None:
    entry = compiled("gpt2")
    assert entry.verdict == "passed", entry


def test_the_compiled_code_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = FeedForward.forward

    def other(self: FeedForward, x: Tensor) -> Tensor:
        return forward(self, x) * (1.001 if torch.compiler.is_compiling() else 1.0)

    monkeypatch.setattr(FeedForward, "forward", other)
    entry = compiled("gpt2")
    assert entry.verdict == "failed"
    assert (entry.value or 0.0) > TOLERANCE


def test_a_compiler_that_is_switched_off_is_not_measured() -> None:
    with torch._dynamo.config.patch(disable=True):
        entry = compiled("gpt2")
    assert entry.verdict == "not measured"
    assert "TORCH_COMPILE_DISABLE" in entry.why


def test_a_machine_that_cannot_compile_is_not_measured() -> None:
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",), "fx_graph_cache": False}):
        entry = compiled("gpt2")
    assert entry.verdict == "not measured"
    assert "see cutaway doctor" in entry.why


def test_a_block_that_cannot_be_compiled_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> Any:
        raise RuntimeError("no such kernel")

    compile = torch.compile
    first = iter([{"backend": fails}])
    monkeypatch.setattr(torch, "compile", lambda f, **options: compile(f, **options | next(first, {})))
    entry = compiled("gpt2")
    assert entry.verdict == "error"
    assert entry.why.startswith("could not be measured: ")
    assert "no such kernel" in entry.why
