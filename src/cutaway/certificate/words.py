"""The laws of decoding: the same tokens, whatever the search is called and whatever stands beside a text."""

import torch

from cutaway.certificate.asked import Asked, Ids
from cutaway.certificate.entry import Measure, NotApplicable
from cutaway.decoding.engine import Job
from cutaway.decoding.write import write
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model

NEW = 8  # tokens that are written
BATCHES = (1, 3, 8)
MOST_TEXTS = 8
WHAT = "texts that differ"


def beam_one_is_greedy(model: Model, asked: Asked) -> Measure:
    """A beam of one, and the engine's greedy search, write what the likeliest token of the plain model spells."""
    jobs = jobs_for(model, asked)
    assert isinstance(model, DecoderModel)
    expected = [plainly(model, job) for job in jobs]
    greedy = [found[0].ids for found in write(model, jobs)]
    beam = [found[0].ids for found in write(model, jobs, beam=1, listener=lambda considered: None)]
    wrong = sum(not a == b == c for a, b, c in zip(greedy, beam, expected, strict=True))
    return Measure(value=float(wrong), what=WHAT, inputs=asked.inputs, tolerance=0.0)


def same_in_any_batch(model: Model, asked: Asked, width: int) -> Measure:
    """Batches of 1, 3 and 8 write the same tokens."""
    jobs = jobs_for(model, asked)
    assert isinstance(model, DecoderModel)
    found = [[texts[0].ids for texts in write(model, jobs, beam=width, rows=rows)] for rows in BATCHES]
    wrong = sum(any(ids != texts[0] for ids in texts) for texts in zip(*found, strict=True))
    return Measure(value=float(wrong), what=WHAT, inputs=asked.inputs, tolerance=0.0)


def jobs_for(model: Model, asked: Asked) -> list[Job]:
    """Texts to write: after the first half of each row, or the translation of each source."""
    if not isinstance(model, DecoderModel) or model.config.task not in ("language_model", "translate"):
        raise NotApplicable("this model writes no text")
    rows = asked.rows[:: max(1, len(asked) // MOST_TEXTS)]
    if isinstance(model, EncoderDecoderModel):
        limit = min(NEW, model.max_len or NEW)
        start = model.config.start_id or 0
        return [Job(prompt=[start], source=row, limit=limit) for row in rows]
    room = model.max_len or 2 * NEW
    prompts = [row[: max(1, min(len(row), room // 2))] for row in rows]
    return [Job(prompt=prompt, limit=min(NEW, room - len(prompt) + 1)) for prompt in prompts]


@torch.no_grad()
def plainly(model: DecoderModel, job: Job) -> Ids:
    """The definition of greedy decoding: no cache, no batch."""
    ids = list(job.prompt)
    ends = model.config.end_ids or ()
    given = [torch.tensor([job.source], device=model.device)] if job.source else []
    for _ in range(job.limit):
        ids.append(int(model(*given, torch.tensor([ids], device=model.device))[0, -1].argmax()))
        if ids[-1] in ends:
            break
    return ids[len(job.prompt) :]
