"""Steering: the vector is a difference of means, survives a file, and is added where and as strongly as asked."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import close, inputs, some_ids, tiny

from cutaway.checkpoints.tensors import write_tensors
from cutaway.decoding import greedy
from cutaway.errors import CheckpointError, InputError
from cutaway.inside.patching.activations import mean_activations, record_activations
from cutaway.inside.patching.interventions import Place
from cutaway.inside.residual.steering import Steering

TAP = "decoder.0.residual_after"


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5", "bert", "vit"])
def test_the_vector_is_a_difference_of_means_and_is_added_everywhere(name: str) -> None:
    model, given = tiny(name), inputs(name, batch=4)
    tap = TAP if hasattr(model, "decoder") else TAP.replace("decoder", "encoder")
    here, there = (tuple(x[rows] for x in given) for rows in (slice(0, 2), slice(2, 4)))
    found = Steering.between(mean_activations(model, *here, places=tap), mean_activations(model, *there, places=tap))
    a, b = (record_activations(model, *its, places=tap)[tap] for its in (here, there))
    vector = a.mean(dim=(0, 1)) - b.mean(dim=(0, 1))
    assert close(found.vectors[tap].flatten(), vector)
    with torch.no_grad(), found.steer(model, 2.5):
        assert close(record_activations(model, *there, places=tap)[tap], b + 2.5 * vector)
    with torch.no_grad(), found.steer(model, 2.5, positions=[1]):
        steered = record_activations(model, *there, places=tap)[tap]
    assert close(steered[:, 1], b[:, 1] + 2.5 * vector)
    assert torch.equal(steered[:, [0, 2]], b[:, [0, 2]])
    with torch.no_grad():
        plain = model(*there)
        with found.steer(model, 0.0):
            assert torch.equal(model(*there), plain)


def test_means_of_chosen_positions() -> None:
    model, ids = tiny("gpt2"), some_ids(5, 6)
    own = torch.tensor([[1], [2], [3], [4], [5]])
    found = mean_activations(model, ids, places=Place(TAP, positions=own), rows=2)[TAP]
    seen = record_activations(model, ids, places=TAP)[TAP]
    assert close(found[0, 0], seen[torch.arange(5), own[:, 0]].mean(dim=0))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_every_written_token_is_steered(name: str) -> None:
    """Generation with a cache writes what whole steered passes would."""
    model, ids = tiny(name), some_ids(1, 4)
    push = Steering({TAP: torch.randn(1, 1, 24, dtype=torch.float64)})
    plain = greedy(model, ids, n=8, end_ids=[])
    with push.steer(model, 3.0):
        written = greedy(model, ids, n=8, end_ids=[])
        so_far = ids
        with torch.no_grad():
            for _ in range(8):
                so_far = torch.cat([so_far, model(so_far)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(torch.as_tensor(written).flatten(), so_far[0, 4:])
    assert not torch.equal(torch.as_tensor(written), torch.as_tensor(plain))
    with pytest.raises(InputError, match="leave positions out"), push.steer(model, positions=-1):
        greedy(model, ids, n=2)


def test_saved_and_loaded_they_are_the_same(tmp_path: Path) -> None:
    push = Steering({TAP: torch.randn(1, 1, 24), "decoder.1.attention.heads": torch.randn(1, 4, 1, 6)})
    push.save(tmp_path / "push.safetensors")
    again = Steering.load(tmp_path / "push.safetensors")
    assert set(again.vectors) == set(push.vectors)
    assert all(torch.equal(again.vectors[tap], vector) for tap, vector in push.vectors.items())


def test_other_files_other_taps_and_other_models_are_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "weights.safetensors", {"a": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="has no steering vectors"):
        Steering.load(tmp_path / "weights.safetensors")
    push = Steering({TAP: torch.zeros(1, 1, 24)})
    with pytest.raises(InputError, match="which this model does not have"), push.steer(tiny("bert")):
        pass
    with pytest.raises(InputError, match="both of the same taps"):
        Steering.between({"a": torch.zeros(1)}, {"b": torch.zeros(1)})
