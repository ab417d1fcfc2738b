"""A tiny circuit task."""

from helpers.tiny_models import some_ids, tiny

from cutaway.inside.circuits.circuit_task import CircuitTask, circuit_task
from cutaway.inside.patching.metrics import LogitDifference


def asked_of(name: str) -> CircuitTask:
    ids, reference = some_ids(4, 7, seed=1), some_ids(4, 7, seed=5)
    return circuit_task(tiny(name), ids, metric=LogitDifference(3, 5), reference=reference)
