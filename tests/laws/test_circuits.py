"""A circuit: the whole model keeps everything, nothing keeps nothing; what is saved is loaded; no node is invented."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, TRANSLATORS, close, inputs, some_ids, tiny
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.circuits.circuit import Circuit, completeness, faithfulness, minimality
from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_nodes, circuit_task, node_place
from cutaway.inside.circuits.find import faithfulness_curve, find_circuit, grow_circuit
from cutaway.inside.patching.activations import mean_activations, record_activations
from cutaway.inside.patching.interventions import Ablate, intervene
from cutaway.inside.patching.metrics import Logit, LogitDifference
from cutaway.model.precision import to_int8


def others(name: str, batch: int = 4) -> tuple[Tensor, ...]:
    if name == "vit":
        return (torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(5)).double(),)
    if name in TRANSLATORS:
        return some_ids(batch, 7, seed=5), some_ids(batch, 6, seed=6)
    return (some_ids(batch, 7, seed=5),)


def asked_of(name: str, **more: Any) -> CircuitTask:
    more = {"kinds": ("heads", "feed_forwards"), "reference": others(name), **more}
    return circuit_task(tiny(name), *inputs(name, batch=4), metric=LogitDifference(3, 5), **more)


@pytest.mark.parametrize("name", ALL)
def test_the_whole_model_is_faithful_and_nothing_is_not(name: str) -> None:
    model, given = tiny(name), inputs(name, batch=4)
    asked = asked_of(name)
    assert close(asked.whole, LogitDifference(3, 5)(model(*given).detach()))
    assert faithfulness(asked, Circuit.of(model, "all", asked.among)) == 1
    assert faithfulness(asked, Circuit.of(model, "none", ())) == 0


@pytest.mark.parametrize("how", ["mean", "resample", "zero"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "bert"])
def test_what_is_outside_a_circuit_is_taken_away(name: str, how: Any) -> None:
    """Against one ablation after the other, by the tools of `patch`."""
    model, given = tiny(name), inputs(name, batch=4)
    asked = asked_of(name, how=how, groups=[0, 1, 0, 1])
    kept = asked.among[::3]
    reference = others(name)
    taps = sorted({node_place(node).tap for node in asked.among})
    values = torch.empty(4, dtype=torch.float64)
    for row in range(4):
        mates = [row % 2, row % 2 + 2] if how == "mean" else [row]
        source = mean_activations(model, *(x[mates] for x in reference), places=taps, per_position=True)
        changes = [
            Ablate(node_place(node)) if how == "zero" else Ablate(node_place(node), "mean", source)
            for node in asked.among
            if node not in kept
        ]
        with torch.no_grad(), intervene(model, changes):
            values[row] = LogitDifference(3, 5)(model(*(x[row : row + 1] for x in given)))[0]
    assert close(asked.measure(kept), values)


@pytest.mark.parametrize("name", ["gpt2", "transformer-pre-norm"])
def test_so_many_rows_at_a_time_change_nothing(name: str) -> None:
    few, many = asked_of(name, rows=3), asked_of(name)
    kept = few.among[::2]
    assert close(few.measure(kept), many.measure(kept))
    ours, theirs = few.estimates(kept), many.estimates(kept)
    assert all(abs(ours[node] - theirs[node]) < 1e-10 for node in theirs)


@pytest.mark.parametrize("kept", ["all", "some", "none"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "transformer-pre-norm", "bert", "t5", "vit"])
def test_estimates_are_the_slope_of_taking_a_node_away(name: str, kept: str) -> None:
    """With what stands in a thousandth of the way from what is there, the first order is all there is."""
    asked = asked_of(name)
    nodes = {"all": asked.among, "some": asked.among[::2], "none": ()}[kept]
    asked = _near(asked)
    guessed = asked.estimates(nodes)
    for node in asked.among[::3]:
        with_it = asked.measure({*nodes, node}).mean()
        without = asked.measure(set(nodes) - {node}).mean()
        assert abs(guessed[node] - (with_it - without).item()) < 1e-7, node


def _near(asked: CircuitTask) -> CircuitTask:
    own = record_activations(asked.model, *asked.inputs, places=list(asked.instead))
    return replace(asked, instead={tap: own[tap] + 1e-4 * (x - own[tap]) for tap, x in asked.instead.items()})


def test_padding_is_no_part_of_a_mean() -> None:
    ids, real = some_ids(4, 7), torch.ones(4, 7, dtype=torch.bool)
    real[1:, 5:] = False
    changed = ids.clone()
    changed[1:, 5:] = 9
    model = tiny("gpt2")
    first, second = (circuit_task(model, x, metric=Logit(3, at=4), real=real) for x in (ids, changed))
    for tap, value in first.instead.items():
        assert close(value, second.instead[tap])


def test_a_circuit_and_its_model_suffer_alike_when_the_circuit_is_the_model() -> None:
    asked = asked_of("gpt2")
    circuit = Circuit.of(asked.model, "all", asked.among, roles={asked.among[0]: "first"})
    found = completeness(asked, circuit)
    assert found.gap == 0
    assert found.subsets == (asked.among, asked.among[:1])
    part = Circuit.of(asked.model, "part", asked.among[:3])
    found = completeness(asked, part, [part.nodes])
    assert found.circuit == (0,)
    assert found.model[0] != 0
    lost = minimality(asked, part)
    assert lost[asked.among[0]] == faithfulness(asked, part) - faithfulness(asked, asked.among[1:3])


@pytest.mark.parametrize("name", ["gpt2", "transformer", "bert"])
def test_a_search_ends_at_the_whole_model(name: str) -> None:
    asked = asked_of(name, kinds=("heads",))
    n = len(asked.among)
    found = find_circuit(asked, "names", sizes=[0, 3, n], shortlist=4)
    assert sorted(found.order) == sorted(asked.among)
    assert found.curve[0] == 0
    assert found.curve[n] == 1
    assert found.curve[3] == faithfulness(asked, found.circuit(3, task="a test"))
    grown = grow_circuit(asked, "names", to=n, by=3)
    assert sorted(grown.order) == sorted(asked.among)
    assert grown.curve[n] == 1
    assert found.smallest(0.999) in (3, n)
    json.dumps(found.to_dict())


def test_the_node_that_does_the_work_is_found_first() -> None:
    """In a model whose other heads write nothing, that one is the circuit."""
    model = tiny("gpt2", n_layers=3)
    keep = "decoder.1.attention.2"
    for layer, block in enumerate(model.decoder):  # type: ignore[arg-type, var-annotated]
        each = block.attention.output.weight.data.view(24, 4, 6)
        each[:, [head for head in range(4) if (layer, head) != (1, 2)]] = 0
    asked = circuit_task(model, some_ids(4, 7), metric=LogitDifference(3, 5), reference=some_ids(4, 7, seed=5))
    assert abs(faithfulness(asked, [keep]) - 1) < 1e-9
    effects = asked.effects()
    assert max(effects, key=lambda node: abs(effects[node])) == keep
    estimates = asked.estimates()
    assert [node for node in estimates if abs(estimates[node]) > 1e-12] == [keep]


def test_a_saved_circuit_is_loaded_as_it_was(tmp_path: Path) -> None:
    model = tiny("llama")
    nodes = ["decoder.0.attention.3", "decoder.1.feed_forward"]
    circuit = Circuit.of(
        model,
        "names",
        nodes,
        task="indirect objects",
        found_with="ranked",
        roles={nodes[0]: "name mover"},
        effects={nodes[1]: 0.25},
        edges=(("input", nodes[0], 1.0), (nodes[0], nodes[1], -0.5), (nodes[1], "logits", 0.1)),
    )
    circuit.save(tmp_path / "c.json")
    assert Circuit.load(tmp_path / "c.json", model) == circuit
    assert circuit.same_weights(model)
    assert not circuit.same_weights(tiny("llama", seed=1))


def test_weights_are_the_same_in_whatever_they_are_kept() -> None:
    half = tiny("llama", dtype=torch.bfloat16)
    circuit = Circuit.of(half, "names", ["decoder.0.attention.3"])
    whole = tiny("llama", seed=1, dtype=torch.float32)
    assert not circuit.same_weights(whole)
    whole.load_state_dict(half.state_dict())
    assert circuit.same_weights(whole)
    assert circuit.same_weights(torch.compile(whole))
    first, second = (to_int8(tiny("llama", seed=seed, dtype=torch.float32)) for seed in range(2))
    for (_, ours), (_, theirs) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        theirs.data.copy_(ours)
    assert not Circuit.of(first, "names", []).same_weights(second)


def test_no_node_is_invented() -> None:
    model = tiny("llama")
    for node in ("decoder.0.attention.4", "decoder.2.attention.0", "encoder.0.attention.0", "decoder.0.cross.0", "x"):
        with pytest.raises(InputError, match=node):
            Circuit.of(model, "wrong", [node])
    for node in ("decoder.0", "decoder.0.attention", "decoder.0.feed_forward.1", "decoder.x.attention.0", "logits"):
        with pytest.raises(InputError, match=f"'{node}' is not the name of a node"):
            Circuit("wrong", {}, (node,))
    with pytest.raises(InputError, match="twice"):
        Circuit.of(model, "wrong", ["decoder.0.attention.0"] * 2)
    with pytest.raises(InputError, match="n_layers=2, this model has 3"):
        Circuit.of(model, "small", ["decoder.0.attention.0"]).check(tiny("llama", n_layers=3))
    with pytest.raises(InputError, match=r"roles of 'decoder.0.attention.1'"):
        Circuit.of(model, "wrong", [], roles={"decoder.0.attention.1": "none"})
    with pytest.raises(InputError, match="an edge of 'embedding'"):
        Circuit.of(model, "wrong", [], edges=(("embedding", "logits", 1.0),))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"node": []}, "unknown key 'node'"),
        ({"nodes": "decoder.0.attention.0"}, "'nodes' of a circuit is a str"),
        ({"nodes": [1]}, "has 1, which is not a str"),
        ({"roles": {"decoder.0.attention.0": 2}}, "has 2, which is not a str"),
        ({"effects": {"decoder.0.attention.0": "much"}}, "which is not a float"),
        ({"edges": [["decoder.0.attention.0", "logits"]]}, "an edge of a circuit is"),
        ({"name": None}, "'name' of a circuit is a NoneType"),
        ({"nodes": ["decoder.9.attention.0"]}, "this model has no 'decoder.9.attention.0'"),
    ],
)
def test_a_file_that_is_no_circuit_is_refused_by_name(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    model = tiny("gpt2")
    values = Circuit.of(model, "names", ["decoder.0.attention.0"]).to_dict() | change
    (tmp_path / "c.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=complaint):
        Circuit.load(tmp_path / "c.json", model)


def test_what_cannot_be_asked_is_refused_by_name() -> None:
    model, ids = tiny("gpt2"), some_ids(4, 7)
    metric = Logit(3)
    with pytest.raises(InputError, match="resampling needs prompts"):
        circuit_task(model, ids, metric=metric, how="resample")
    with pytest.raises(InputError, match="a reference"):
        circuit_task(model, ids, metric=metric, reference=ids[:2])
    with pytest.raises(InputError, match="3 groups for 4 rows"):
        circuit_task(model, ids, metric=metric, groups=[0, 1, 2])
    with pytest.raises(InputError, match="kinds="):
        circuit_task(model, ids, metric=metric, kinds=["neurons"])
    with pytest.raises(InputError, match="in training"):
        circuit_task(tiny("gpt2").train(), ids, metric=metric)
    asked = circuit_task(model, ids, metric=metric)
    with pytest.raises(InputError, match=r"'decoder.0.feed_forward' is not among"):
        asked.measure(["decoder.0.feed_forward"])
    for ask in (asked.effects, asked.estimates):
        with pytest.raises(InputError, match=r"'decoder.7.attention.0' is not among"):
            ask(["decoder.7.attention.0"])
    for size in (9, -1):
        with pytest.raises(InputError, match=f"size {size} of 8 nodes"):
            faithfulness_curve(asked, asked.among, [size])
        with pytest.raises(InputError, match=f"size {size} of 8 nodes"):
            find_circuit(asked, "names", sizes=[size])
    for rows, groups in ((1, None), (4, [0, 0, 0, 1])):
        with pytest.raises(InputError, match="the mean over one row is the row itself"):
            circuit_task(model, ids[:rows], metric=metric, groups=groups)
        assert circuit_task(model, ids[:rows], metric=metric, groups=groups, reference=ids[-rows:]).among
        assert circuit_task(model, ids[:rows], metric=metric, groups=groups, how="zero").among
    with pytest.raises(InputError, match="inputs: 1 tensors, their reference: 2"):
        circuit_task(model, ids, metric=metric, reference=[ids, ids])
    same = circuit_task(model, ids[:1], metric=metric, reference=ids[:1])
    with pytest.raises(InputError, match="nothing for a circuit to keep"):
        faithfulness_curve(same, same.among, [1])


def test_nodes_have_the_order_of_the_pass() -> None:
    names = circuit_nodes(tiny("transformer"))
    assert names[0] == "encoder.0.attention.0"
    assert "decoder.1.cross.3" in names
    assert "encoder.1.feed_forward" in names
    assert len(names) == 2 * (4 + 1) + 2 * (4 + 4 + 1)
