"""Finding a circuit: what is ranked is measured, and what is grown is worth most beside what is there."""

import pytest
import torch
from helpers.circuit_tasks import asked_of

from cutaway.inside.circuits.circuit_task import node_place
from cutaway.inside.circuits.find import find_circuit, grow_circuit
from cutaway.inside.patching.interventions import Patch, intervene


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_shortlist_is_ordered_by_what_is_lost_without_each(name: str) -> None:
    asked = asked_of(name)
    found = find_circuit(asked, "some", sizes=[], shortlist=5)
    guessed = asked.estimates()
    listed = sorted(guessed, key=lambda node: -abs(guessed[node]))[:5]
    lost = {}
    for node in listed:
        with torch.no_grad(), intervene(asked.model, Patch(node_place(node), asked.instead)):
            lost[node] = (asked.whole - asked.metric(asked.model(*asked.inputs))).mean().item()
    assert found.worth == pytest.approx(guessed | lost)
    order = sorted(lost, key=lambda node: -lost[node])
    assert [node for node in found.order if node in lost] == order
    assert order != sorted(lost, key=lambda node: -guessed[node])  # or a guess would do


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_what_works_against_the_task_stands_behind_what_was_only_estimated(name: str) -> None:
    asked = asked_of(name)
    found = find_circuit(asked, "some", sizes=[], shortlist=5)
    guessed = asked.estimates()
    listed = sorted(guessed, key=lambda node: -abs(guessed[node]))
    kinds = [1 if node in listed[5:] else 0 if found.worth[node] > 0 else 2 for node in found.order]
    assert kinds == sorted(kinds)
    assert set(kinds) == {0, 1, 2}
    rest = [node for node in found.order if node in listed[5:]]
    assert rest == sorted(rest, key=lambda node: -guessed[node])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_each_node_that_is_added_is_worth_most_beside_those_that_are_there(name: str) -> None:
    asked = asked_of(name)
    n = len(asked.among)
    grown = grow_circuit(asked, "some", to=n, by=1)
    for size, node in enumerate(grown.order):
        worth = asked.estimates(grown.order[:size])
        assert node == max(set(asked.among) - set(grown.order[:size]), key=lambda other: worth[other])
        assert grown.worth[node] == worth[node]
    whole = asked.estimates()
    assert list(grown.order) != sorted(whole, key=lambda node: -whole[node])
