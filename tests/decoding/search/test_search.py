"""What a score says, and when a search knows that a text cannot go on."""

import pytest
import torch
from helpers.tiny_models import some_ids, tiny

from cutaway.decoding import Job, run_jobs
from cutaway.decoding.rules.scores import BadWords, MinLength, RepetitionPenalty, Temperature, TopK
from cutaway.errors import InputError


@pytest.mark.parametrize("rules", [(), (TopK(1),), (Temperature(0.5),), (BadWords(((3,), (4,), (5, 6))), MinLength(4))])
@pytest.mark.parametrize("seed", [None, 3])
def test_a_score_is_the_models_own_whatever_the_rules(rules, seed):
    model = tiny("gpt2")
    for prompt in some_ids(8, 4, seed=5).tolist():
        found = run_jobs(model, [Job(prompt=prompt, limit=6, rules=rules, seed=seed)], end_ids=[7])[0][0]
        text = torch.tensor([[*prompt, *found.ids]])
        log_p = model(text[:, :-1]).log_softmax(dim=-1)[0, len(prompt) - 1 :]
        own = log_p.gather(1, text[0, len(prompt) :, None]).sum() / len(found.ids)
        assert found.score == pytest.approx(own.item(), abs=1e-9)


def test_a_penalty_counts_in_a_beam_and_not_without_one():
    model, job = tiny("gpt2"), Job(prompt=[1, 2, 3], limit=6, rules=(RepetitionPenalty(1.5),))
    beam = run_jobs(model, [job], end_ids=[], listener=lambda _: None)[0][0]  # with a listener, a beam of one
    plain = run_jobs(model, [job], end_ids=[])[0][0]
    assert plain.ids == beam.ids
    assert plain.score != beam.score


@pytest.mark.parametrize("beam", [1, 4])
def test_a_text_that_cannot_go_on_is_known_at_once(beam):
    """Every word is bad: nothing may come, and 20 steps are not needed to see it."""
    steps = []
    model = tiny("gpt2")
    model.head.register_forward_hook(lambda *_: steps.append(1))
    bad = BadWords(tuple((word,) for word in range(50)))
    with pytest.raises(InputError, match="after 0 tokens"):
        run_jobs(
            model, [Job(prompt=[1, 2], limit=20, rules=(bad,)), Job(prompt=[1, 2], limit=20)], beam=beam, end_ids=[]
        )
    assert len(steps) == 1
