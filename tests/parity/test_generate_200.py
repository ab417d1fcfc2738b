"""200 random texts each, single precision, token for token: in any batch, without a cache, and by their library.

No near-tie is forgiven, and none was met: these weights are large, so that hypotheses are far apart.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import jaxtyping
import pytest
import torch
from helpers.decode_batches import rows_of
from helpers.parity.beam_twins import N, ends_of, generated, trimmed, twins_that_hesitate
from helpers.parity.generating_twins import gpt2, llama, marian, t5
from helpers.parity.padded_batches import Batch, padded
from helpers.parity.twins import Twins

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.engine.engine import padded_ids as side_by_side
from cutaway.decoding.search.beam import BeamSearch
from cutaway.decoding.search.search import GreedySearch, Search
from cutaway.model.model import DecoderModel, EncoderDecoderModel

LAYOUTS = [gpt2, marian, t5, llama]
BATCHES = 4  # of 50 texts each
PENALTIES = [1.0, 0.0, 0.6, 2.0]


@cache
def case(model) -> tuple[Twins, list[Batch], list[int]]:
    """Twins, 200 texts of 1 to 17 tokens to begin with, and tokens that end about half of what follows."""
    with TemporaryDirectory() as folder:
        twins = twins_that_hesitate(model, Path(folder))
    side = "right" if isinstance(twins.ours, EncoderDecoderModel) else "left"
    draw = torch.Generator().manual_seed(5)
    lengths = [torch.randint(1, 18, (200 // BATCHES,), generator=draw).tolist() for _ in range(BATCHES)]
    batches = [padded(some, side, 53, seed) for seed, some in enumerate(lengths)]
    return twins, batches, ends_of(twins, batches[0].ids, batches[0].mask)


def jobs_of(twins: Twins, batch: Batch) -> list[Job]:
    rows = rows_of(batch.ids, batch.real)
    if isinstance(twins.ours, EncoderDecoderModel):
        return [Job(prompt=[twins.ours.config.start_id], source=row, limit=N) for row in rows]
    return [Job(prompt=row, limit=N) for row in rows]


@torch.no_grad()
def without_a_cache(model: DecoderModel, jobs: list[Job], search: Search) -> list[list[list[int]]]:
    """Every step reads everything again that was written so far, of every hypothesis."""
    search.enter(slice(0, len(jobs)), jobs)
    for n in range(N):
        texts = [
            [*job.prompt, *written]
            for job, row in zip(jobs, search.tokens[:, :, :n].tolist(), strict=True)
            for written in row
        ]
        ids, real = side_by_side(texts, torch.device("cpu"))
        last = torch.tensor([len(text) - 1 for text in texts])
        if isinstance(model, EncoderDecoderModel):
            source, source_real = side_by_side([job.source for job in jobs for _ in range(search.width)], ids.device)
            logits = model(source, ids, source_real=source_real, real=real)
        else:
            logits = model(ids, real=real)
        after = logits[torch.arange(len(texts)), last].unflatten(0, (len(jobs), search.width))
        parents, _ = search.advance(after)
        assert parents.shape == (len(jobs), search.width)
    return [[hypothesis.ids for hypothesis in search.found(row)] for row in range(len(jobs))]


def all_texts(twins: Twins, jobs: list[Job], ends: list[int], **options) -> list[list[list[int]]]:
    return [[h.ids for h in found] for found in run_jobs(twins.ours, jobs, end_ids=ends, **options)]


@pytest.mark.parametrize("model", LAYOUTS)
def test_greedy_as_their_library_generates(model):
    twins, batches, ends = case(model)
    lengths: list[int] = []
    for batch in batches:
        theirs, _ = generated(twins, batch.ids, batch.mask, ends, 1, 1.0, False)
        expected = [trimmed(row, ends) for row in theirs.tolist()]
        ours = [found[0] for found in all_texts(twins, jobs_of(twins, batch), ends)]
        assert ours == expected
        lengths += map(len, ours)
    assert len(lengths) == 200
    assert 20 < lengths.count(N) < 180, "some have to end, and some have not to"


@pytest.mark.parametrize("model", LAYOUTS)
def test_beams_as_their_library_generates(model):
    twins, batches, ends = case(model)
    for batch, penalty in zip(batches, PENALTIES, strict=True):
        theirs, _ = generated(twins, batch.ids, batch.mask, ends, 4, penalty, False)
        expected = [trimmed(row, ends) for row in theirs.tolist()]
        found = all_texts(twins, jobs_of(twins, batch), ends, beam=4, length_penalty=penalty)
        assert [text for texts in found for text in texts] == expected, penalty


@pytest.mark.parametrize("model", LAYOUTS)
@pytest.mark.parametrize("beam", [1, pytest.param(4, marks=pytest.mark.long)])
def test_fault_17_in_batches_of_1_3_and_32(model, beam, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # one by one, checks take half of the time
    twins, batches, ends = case(model)
    jobs = [job for batch in batches for job in jobs_of(twins, batch)]
    assert len(jobs) == 200
    alone, three, many = (all_texts(twins, jobs, ends, beam=beam, rows=rows) for rows in (1, 3, 32))
    assert alone == three
    assert three == many


@pytest.mark.parametrize("model", LAYOUTS)
@pytest.mark.parametrize("beam", [1, 4])
def test_with_and_without_a_cache(model, beam):
    twins, batches, ends = case(model)
    for batch in batches:
        jobs = jobs_of(twins, batch)
        room = {"rows": len(jobs), "most": N, "ends": ends, "device": torch.device("cpu")}
        search: Search = GreedySearch(**room) if beam == 1 else BeamSearch(beam, **room)
        assert without_a_cache(twins.ours, jobs, search) == all_texts(twins, jobs, ends, beam=beam)
