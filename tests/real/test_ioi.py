"""SmolLM2-135M and the indirect object, on our own sentences: who does it, by what they look at and what they write."""

from helpers.real_weights import real_weights

from cutaway.checkpoints import load, load_tokenizer
from cutaway.inside.circuits.ioi import ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ioi_head_scores
from cutaway.model.model import DecoderModel


def test_the_heads_that_name_the_other_one() -> None:
    path = real_weights("smollm2")
    model, tokenizer = load(path), load_tokenizer(path)
    assert isinstance(model, DecoderModel)
    asked = ioi_prompts(tokenizer, 16, seed=1)
    found = asked.answers(model).to_dict()
    assert found["accuracy"] > 0.9
    assert found["logit_difference"] > 3
    scores = ioi_head_scores(model, asked, copying_rows=4)
    assert {head for head, _ in scores["name_mover"].best(3)} <= {f"decoder.23.attention.{n}" for n in (0, 1, 2, 7)}
    ((suppressor, score),) = scores["s_suppression"].best(1)
    assert suppressor == "decoder.23.attention.3"
    assert score > 0.4
    assert scores["induction"].best(1)[0][0] == "decoder.17.attention.4"
