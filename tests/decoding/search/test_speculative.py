"""Speculative decoding: the draft decides how fast a text comes, never what it says."""

import pytest
import torch
from helpers.tiny_models import DECODERS, TRANSLATORS, VOCAB, some_ids, tiny
from torch import Tensor

from cutaway.decoding import Job, run_jobs, speculative
from cutaway.errors import InputError
from cutaway.model.model import DecoderModel

LENGTHS = [7, 1, 5, 12]
N = 15
ENDS = [5, 6, 7]


def prompts(lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor]:
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return some_ids(len(lengths), max(lengths), seed=3), real


def expected(model: DecoderModel, ids: Tensor, real: Tensor, n: int = N, ends: list[int] = ENDS) -> list[list[int]]:
    jobs = [Job(prompt=row[its].tolist(), limit=n) for row, its in zip(ids, real, strict=True)]
    return [found[0].ids for found in run_jobs(model, jobs, end_ids=ends)]


class Wrong:
    """A head whose likeliest token is never the other's."""

    def __init__(self, head: torch.nn.Module) -> None:
        self.head = head

    def __call__(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        return self.head(hidden, real).roll(1, dims=-1)


def drafts(name: str, model: DecoderModel) -> dict[str, DecoderModel]:
    """From one that is always right, over some that are sometimes, to one that never is."""
    near, wrong = tiny(name), tiny(name)
    for parameter in near.parameters():
        parameter.data += 0.02 * torch.randn(parameter.shape, dtype=torch.float64)
    del wrong.head
    wrong.head = Wrong(model.head)
    return {"itself": model, "near": near, "other": tiny(name, seed=1), "wrong": wrong}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("k", [1, 4, 7])
def test_whatever_the_draft_the_text_is_the_models_own(name, k):
    model, (ids, real) = tiny(name), prompts()
    free = expected(model, ids, real, ends=[])
    ends = [free[0][4], free[2][9]]
    texts = expected(model, ids, real, ends=ends)
    assert min(map(len, texts)) < 15, "some have to end before others"
    for kind, draft in drafts(name, model).items():
        found = speculative(model, draft, ids, n=N, k=k, real=real, end_ids=ends)
        assert found.texts == texts, kind
        assert 0 <= found.accepted <= found.proposed
        if kind == "itself":
            assert found.accepted == found.proposed
            assert found.rounds == -(-max(map(len, texts)) // (k + 1))
        if kind == "wrong":
            assert found.accepted == 0 < found.proposed
            assert found.rounds == max(map(len, texts))


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translation_is_the_models_own(name):
    model, (source, real) = tiny(name), prompts([7, 2, 5, 9])
    jobs = [Job(prompt=[1], source=row[its].tolist(), limit=N) for row, its in zip(source, real, strict=True)]
    texts = [found[0].ids for found in run_jobs(model, jobs, end_ids=range(10))]
    start = torch.ones(4, 1, dtype=torch.long)
    for kind, draft in drafts(name, model).items():
        options = {"source": source, "source_real": real, "end_ids": range(10)}
        found = speculative(model, draft, start, n=N, **options)
        assert found.texts == texts, kind
        assert (found.accepted == found.proposed) == (kind == "itself")


def test_a_draft_of_another_family():
    model, (ids, real) = tiny("llama"), prompts()
    draft = tiny("gpt2", n_layers=1, n_heads=2)
    assert speculative(model, draft, ids, n=N, real=real, end_ids=ENDS).texts == expected(model, ids, real)


def test_prompts_that_are_padded_on_the_left():
    model, (ids, real) = tiny("gpt2"), prompts()
    left = torch.stack([row.roll(int((~its).sum())) for row, its in zip(ids, real, strict=True)])
    found = speculative(model, tiny("gpt2", seed=1), left, n=N, real=real.flip(1), end_ids=ENDS)
    assert found.texts == expected(model, ids, real)


@pytest.mark.parametrize("short", ["model", "draft", "both"])
def test_up_to_the_last_place_of_the_model_and_beyond_that_of_the_draft(short):
    sizes = {"model": 26 if short != "draft" else 40, "draft": {"model": 40, "draft": 9, "both": 26}[short]}
    model, (ids, real) = tiny("gpt2", max_len=sizes["model"]), prompts()
    for draft in (tiny("gpt2", seed=1, max_len=sizes["draft"]), tiny("gpt2", max_len=sizes["draft"])):
        found = speculative(model, draft, ids, n=15, real=real, end_ids=[9])
        assert found.texts == expected(model, ids, real, 15, [9])
    with pytest.raises(InputError, match="at most n=15 more fit into max_len=26"):
        speculative(tiny("gpt2", max_len=26), model, ids, n=16, real=real)


def test_a_row_alone_as_in_any_batch_and_without_a_guess():
    model, draft, (ids, real) = tiny("llama"), tiny("llama", seed=1), prompts()
    together = speculative(model, draft, ids, n=N, real=real, end_ids=ENDS)
    for row, its, text in zip(ids, real, together.texts, strict=True):
        assert speculative(model, draft, row[its][None], n=N, end_ids=ENDS).texts == [text]
    blind = speculative(model, draft, ids, n=N, k=0, real=real, end_ids=ENDS)
    assert (blind.texts, blind.proposed) == (together.texts, 0)
    assert speculative(model, draft, ids, n=1, real=real).texts == [text[:1] for text in together.texts]


def test_who_has_enough_ends_a_text():
    model, (ids, real) = tiny("gpt2"), prompts()
    free = speculative(model, model, ids, n=N, real=real, end_ids=[])
    told: list[tuple[int, int]] = []

    def enough(number: int, new: list[int]) -> int | None:
        told.append((number, len(new)))
        assert new == free.texts[number][: len(new)]
        return number + 1 if len(new) > number and number < 3 else None

    found = speculative(model, model, ids, n=N, real=real, end_ids=[], enough=enough)
    assert found.texts == [text[: row + 1] if row < 3 else text for row, text in enumerate(free.texts)]
    assert max(n for number, n in told if number < 3) == 5, "the first round is enough for them"


def test_what_cannot_be_written_is_refused():
    model, ids = tiny("gpt2"), some_ids(2, 5)
    for match, draft, options in (
        ("n=0", model, {"n": 0}),
        ("k=-1", model, {"n": 3, "k": -1}),
        ("two of a kind", tiny("t5"), {"n": 3}),
        ("share one vocabulary", tiny("gpt2", vocab_size=VOCAB + 1), {"n": 3}),
        ("reads no source", model, {"n": 3, "source": ids}),
        ("text 2 has an empty prompt", model, {"n": 3, "real": torch.tensor([[True] * 5, [False] * 5])}),
    ):
        with pytest.raises(InputError, match=match):
            speculative(model, draft, ids, **options)
    with pytest.raises(InputError, match="give `source`"):
        speculative(tiny("t5"), tiny("t5"), ids, n=3)
    with pytest.raises(InputError, match="in training"):
        speculative(model, tiny("gpt2").train(), ids, n=3)
