"""Edges of a circuit: each is one patched path, and where nobody else speaks the direct path is the whole effect."""

import pytest
import torch
from helpers.tiny_models import inputs, some_ids, tiny

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.circuit_task import circuit_nodes, circuit_task
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.paths import patch_paths
from cutaway.inside.patching.place import Place

METRIC = LogitDifference(3, 5)


def place(node: str, tap: str) -> Place:
    part, _, head = node.rpartition(".")
    return Place(f"{part}.{tap}", int(head))


@pytest.mark.parametrize("name", ["gpt2", "transformer", "transformer-pre-norm", "bert"])
@torch.no_grad()
def test_an_edge_is_one_patched_path(name: str) -> None:
    model, given = tiny(name), inputs(name)
    other = tuple((x + 11) % 50 for x in given)
    asked = circuit_task(model, *given, metric=METRIC, reference=other, how="resample", rows=1)
    nodes = circuit_nodes(model, ["heads"])[::3]
    found = find_edges(asked, Circuit.of(model, "some", nodes), least=0.0)
    assert {start for start, _, _ in found.edges} == set(nodes)
    whole = METRIC(model(*given)).mean()
    for start, end, weight in found.edges:
        to = "logits" if end == "logits" else [place(end, tap) for tap in ("query", "key", "value")]
        expected = METRIC(patch_paths(model, given, other, start, to)).mean()
        assert weight == pytest.approx((whole - expected).item(), abs=1e-9), (start, end)
    assert max(abs(weight) for _, end, weight in found.edges if end != "logits") > 1e-3


@torch.no_grad()
def test_alone_a_head_speaks_to_the_logits_with_all_it_has() -> None:
    model, ids = tiny("llama"), some_ids(4, 7)
    keep = "decoder.0.attention.1"
    for layer, block in enumerate(model.decoder):  # type: ignore[arg-type, var-annotated]
        each = block.attention.output.weight.data.view(24, 4, 6)
        each[:, [head for head in range(4) if (layer, head) != (0, 1)]] = 0
    asked = circuit_task(model, ids, metric=METRIC, reference=some_ids(4, 7, seed=5))
    found = find_edges(asked, Circuit.of(model, "two", [keep, "decoder.1.attention.3"]), least=1e-6)
    assert [edge[:2] for edge in found.edges] == [(keep, "logits")]
    assert found.edges[0][2] == pytest.approx(asked.effects([keep])[keep])


def test_weak_edges_are_left_out_and_feed_forwards_have_some(tmp_path) -> None:
    model, (ids,) = tiny("gpt2"), inputs("gpt2")
    asked = circuit_task(model, ids, metric=METRIC, reference=(ids + 7) % 50, kinds=("heads", "feed_forwards"))
    nodes = ["decoder.0.attention.1", "decoder.0.feed_forward", "decoder.1.attention.0", "decoder.1.feed_forward"]
    circuit = Circuit.of(model, "some", nodes)
    every = find_edges(asked, circuit, least=0.0)
    assert len(every.edges) == 4 + 6
    worth = (asked.whole.mean() - asked.none.mean()).abs().item()
    fifth, fourth = sorted(abs(weight) for _, _, weight in every.edges)[-5:-3]
    for least in (0.999 * fourth, 1.001 * fifth):
        few = find_edges(asked, circuit, least=least / worth)
        assert few.edges == tuple(edge for edge in every.edges if abs(edge[2]) >= fourth)
    assert len(few.edges) == 4
    few.save(tmp_path / "c.json")
    assert Circuit.load(tmp_path / "c.json", model) == few
    with pytest.raises(InputError, match=r"'decoder.0.feed_forward' is not among"):
        find_edges(circuit_task(model, ids, metric=METRIC), circuit)
