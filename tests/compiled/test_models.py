"""torch.compile sees the model as one graph, in which unwatched taps leave no trace and watched ones change no bit."""

from collections.abc import Iterator

import pytest
import torch
from helpers.tiny_models import ALL, DECODERS, close, inputs, some_ids, tiny
from torch import Tensor

from cutaway.model.model import DecoderModel, Model
from cutaway.model.tap import Part, edit, watch


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch.compiler.reset()
    with torch.no_grad():
        yield


def graph_of(model: Model, *given: Tensor) -> list[str]:
    """The graph that the compiler is handed, written out."""
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph.print_readable(print_output=False))
        return graph

    torch.compiler.reset()
    torch.compile(model, backend=keep, fullgraph=True)(*given)
    return [line.split("#")[0].rstrip() for line in "\n".join(graphs).splitlines()]


@pytest.mark.parametrize("name", ALL)
def test_the_graph_with_unwatched_taps_is_the_graph_without_taps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    with_taps = graph_of(model, *given)
    monkeypatch.setattr(Part, "tap", lambda self, name, value: value)
    monkeypatch.setattr(Part, "reads", lambda self, *names: False)
    monkeypatch.setattr(Part, "edits", lambda self, *names: False)
    assert with_taps == graph_of(model, *given)
    assert any("scaled_dot_product_attention" in line for line in with_taps)


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_a_compiled_model_is_watched_and_no_bit_changes(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    compiled = torch.compile(model, fullgraph=True)
    plain = compiled(*given)
    assert close(plain, model(*given))
    with watch(compiled, "*") as seen:  # a watch that begins after compiling
        watched = compiled(*given)
    assert torch.equal(watched, plain)
    with watch(model, "*") as expected:
        model(*given)
    assert set(seen) == set(expected)
    assert all(close(seen[tap], expected[tap]) for tap in expected)
    assert torch.equal(compiled(*given), plain)


def test_the_same_watch_again_compiles_nothing_again() -> None:
    model, ids, n = tiny("gpt2"), some_ids(2, 6), 0

    def count(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal n
        n += 1
        return graph

    compiled = torch.compile(model, backend=count, fullgraph=True)
    for _ in range(12):
        compiled(ids)
        with watch(compiled, "*.pattern") as seen:
            compiled(ids)
        assert len(seen) == 2
    assert n == 2


def test_an_edit_takes_effect_in_a_compiled_model() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    plain = compiled(ids)
    with edit(compiled, {"decoder.0.attention.pattern": torch.zeros_like}):
        edited = compiled(ids)
    with edit(model, {"decoder.0.attention.heads": torch.zeros_like}):
        assert close(edited, model(ids))
    assert not close(edited, plain)
    assert torch.equal(compiled(ids), plain)


@pytest.mark.parametrize("name", DECODERS)
def test_a_cached_step_compiles_once_for_all_lengths(name: str) -> None:
    model, ids, n = tiny(name), some_ids(2, 8), 0
    assert isinstance(model, DecoderModel)

    def count(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal n
        n += 1
        return graph

    step = torch.compile(model, backend=count, fullgraph=True)
    cache = model.new_cache(2, 10)
    model(ids[:, :3], cache=cache)
    steps = [step(ids[:, i : i + 1], cache=cache) for i in range(3, 8)]
    assert close(torch.cat(steps, dim=1), model(ids)[:, 3:])
    assert n == 1


@pytest.mark.parametrize("name", [name for name in ALL if name != "vit"])  # a picture has one size
def test_a_new_length_compiles_once_more_and_then_never_again(name: str) -> None:
    model, n = tiny(name), 0

    def count(graph: torch.fx.GraphModule, example: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal n
        n += 1
        return graph

    compiled = torch.compile(model, backend=count, fullgraph=True)
    for length in range(2, 9):
        given = [some_ids(2, length) for _ in inputs(name)]
        assert close(compiled(*given), model(*given))
    assert n <= 2
