"""Recurrent models on a GPU: the CPU's numbers and words, and captured passes with the gradients of others."""

import torch
from helpers.tiny_models import RECURRENT, close, some_ids, tiny
from torch import Tensor

from cutaway.decoding import Job, run_jobs
from cutaway.model.model import Model
from cutaway.training.cuda_graphs import Captured
from cutaway.training.loop import add_gradient

DEVICE = "cuda"


def given(name: str, seed: int = 0) -> dict[str, Tensor]:
    source, ids = some_ids(4, 7, seed=seed), some_ids(4, 6, seed=seed + 1)
    real = torch.arange(7)[None] < torch.tensor([7, 3, 0, 5])[:, None]  # a filler row among them
    return {"source": source, "ids": ids, "source_real": real} if name == "lstm-translator" else {"ids": ids}


def logits(model: Model, part: dict[str, Tensor]) -> Tensor:
    part = dict(part)
    first = [part.pop(name) for name in ("source", "ids") if name in part]
    return model(*first, **part)


def loss_of(model: Model, part: dict[str, Tensor]) -> Tensor:
    return logits(model, part).log_softmax(dim=-1)[..., 0].mean()[None]


def to(device: str, part: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in part.items()}


def gradient_of(model: Model) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_numbers_and_gradients_are_those_of_the_cpu() -> None:
    """Gradients of a model that is not in training, too, as whoever explains an answer asks for."""
    for name in RECURRENT:
        here, there = tiny(name, dropout=0.0), tiny(name, dropout=0.0).to(DEVICE)
        part = given(name)
        assert close(logits(there, to(DEVICE, part)).cpu(), logits(here, part)), name
        add_gradient(here, loss_of, None, part)
        add_gradient(there, loss_of, None, to(DEVICE, part))
        assert close(gradient_of(there).cpu(), gradient_of(here)), name


def test_words_are_those_of_the_cpu_in_any_batch() -> None:
    for name in RECURRENT:
        rows = [row[: 3 + i % 5].tolist() for i, row in enumerate(some_ids(9, 7, seed=3))]
        across = name == "lstm-translator"
        jobs = [Job(prompt=[1] if across else row, source=row if across else [], limit=9) for row in rows]
        for beam in (1, 4):
            model = tiny(name)
            here = [found[0].ids for found in run_jobs(model, jobs, end_ids=range(5, 12), beam=beam)]
            model = model.to(DEVICE)
            for n in (2, 9):
                found = run_jobs(model, jobs, end_ids=range(5, 12), beam=beam, rows=n)
                assert [one[0].ids for one in found] == here, (name, beam, n)


def test_captured_passes_give_the_same_gradients() -> None:
    for name in RECURRENT:
        model = tiny(name, dtype=torch.float32, dropout=0.0).to(DEVICE).train()
        captured = Captured(model, loss_of, torch.bfloat16)
        for seed in range(4):  # the first as always, then recorded, then replayed
            part = to(DEVICE, given(name, seed))
            model.zero_grad()
            expected = add_gradient(model, loss_of, torch.bfloat16, part)
            wanted = gradient_of(model)
            model.zero_grad()
            assert (captured(part) - expected).abs().max() < 1e-3
            assert (gradient_of(model) - wanted).abs().max() < 1e-2 * wanted.abs().max()
        assert len(captured.recordings) == 1
