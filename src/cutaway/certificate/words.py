"""The laws of decoding: the same tokens, whatever the search is called and whatever stands beside a text."""

import torch

from cutaway.certificate.asked import Ids
from cutaway.certificate.entry import Measure, NotApplicable
from cutaway.certificate.subject import Subject
from cutaway.decoding.engine import Job
from cutaway.decoding.write import write
from cutaway.model.model import DecoderModel, EncoderDecoderModel

# New tokens of each text: texts of different lengths leave at different steps, so that others move and enter.
LIMITS = (4, 1, 3, 2, 5, 1, 3, 2)
PROMPT = 6  # tokens at most
BATCHES = (1, 3, 8)


def beam_one_is_greedy(subject: Subject) -> Measure:
    """A beam of one, and the engine's greedy search, write what the likeliest token of the plain model spells."""
    model, jobs = texts_to_write(subject)
    greedy = [found[0].ids for found in write(model, jobs)]
    beam = [found[0].ids for found in write(model, jobs, beam=1, listener=lambda considered: None)]
    wrong = [a != b or not is_greedy(model, job, a) for job, a, b in zip(jobs, greedy, beam, strict=True)]
    return that_differ(wrong, jobs)


def same_in_any_batch(subject: Subject, width: int) -> Measure:
    """Batches of 1, 3 and 8 write the same tokens."""
    model, jobs = texts_to_write(subject)
    found = [[texts[0].ids for texts in write(model, jobs, beam=width, rows=rows)] for rows in BATCHES]
    return that_differ([any(ids != texts[0] for ids in texts) for texts in zip(*found, strict=True)], jobs)


def texts_to_write(subject: Subject) -> tuple[DecoderModel, list[Job]]:
    """What follows the beginning of each row, or the translation of each source."""
    model = subject.model
    if not isinstance(model, DecoderModel) or model.config.task not in ("language_model", "translate"):
        raise NotApplicable("this model writes no text")
    jobs, room = [], model.max_len or PROMPT + max(LIMITS)
    for row, limit in zip(subject.asked.rows[-len(LIMITS) :], LIMITS, strict=True):
        if isinstance(model, EncoderDecoderModel):
            jobs.append(Job(prompt=[model.config.start_id or 0], source=row, limit=min(limit, room)))
        else:
            prompt = row[: max(1, min(PROMPT, room // 2))]
            jobs.append(Job(prompt=prompt, limit=min(limit, room - len(prompt) + 1)))
    return model, jobs


@torch.no_grad()
def is_greedy(model: DecoderModel, job: Job, text: Ids) -> bool:
    """Greedy decoding by its definition, with no cache and no batch: every token is the likeliest after those before it
    (all are asked at once, for a decoder never sees what follows), and the text goes on to an end, or to its limit."""
    given = [torch.tensor([job.source], device=model.device)] if job.source else []
    read = torch.tensor([[*job.prompt, *text[:-1]]], device=model.device)
    hidden = model.hidden(*given, read)[:, len(job.prompt) - 1 :]
    ends = [token in (model.config.end_ids or ()) for token in text]
    complete = not any(ends[:-1]) and (ends[-1] or len(text) == job.limit)
    return complete and text == model.head(hidden)[0].argmax(dim=-1).tolist()


def that_differ(wrong: list[bool], jobs: list[Job]) -> Measure:
    inputs = f"{len(jobs)} texts of up to {max(job.limit for job in jobs)} new tokens"
    return Measure(value=float(sum(wrong)), what="texts that differ", inputs=inputs, tolerance=0.0)
