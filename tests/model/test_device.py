"""A pass over a few tokens takes one thread, whatever the machine has; what it found it leaves as it was."""

import pytest
import torch
from helpers.tiny_models import some_ids, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.model.device import threads_for


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("tokens", "threads"), [(1, 1), (63, 1), (64, 3), (10_000, 3)])
def test_a_few_tokens_take_one_thread(tokens: int, threads: int) -> None:
    with threads_for(tokens):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_the_threads_come_back_after_an_error() -> None:
    with pytest.raises(ValueError, match="odd"), threads_for(1):
        raise ValueError("odd")
    assert torch.get_num_threads() == 3


def test_steps_and_short_prompts_take_one_thread_and_long_prompts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = tiny("gpt2", max_len=128, dtype=torch.float32), []
    hidden = model.hidden

    def watched(ids: torch.Tensor, **more: object) -> torch.Tensor:
        seen.append((ids.numel(), torch.get_num_threads()))
        return hidden(ids, **more)

    monkeypatch.setattr(model, "hidden", watched)
    for length in (9, 100):
        run_jobs(model, [Job(prompt=some_ids(1, length)[0].tolist(), limit=2)])
    assert seen == [(8, 1), (1, 1), (1, 1), (99, 3), (1, 1), (1, 1)]
    assert torch.get_num_threads() == 3
