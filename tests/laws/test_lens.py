"""The lens reads every layer as the last is read: its last row is the model; an untrained tuned lens does nothing."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ALL, TRANSLATORS, VOCAB, close, inputs, some_ids, tiny
from torch import Tensor

from cutaway.errors import InputError
from cutaway.inside.residual import logit_lens as lenses
from cutaway.inside.residual.logit_lens import Lens, logit_lens
from cutaway.inside.residual.tuned_lens import TunedLens, model_fingerprint
from cutaway.model.model import Model
from cutaway.model.tap import watch


def of_all(model: Model, *given: Tensor, **options: object) -> Lens:
    n = 7 if model.config.family == "vit" else VOCAB
    return logit_lens(model, *given, tokens=range(n), **options)


@pytest.mark.parametrize("name", ALL)
def test_the_last_row_is_what_the_model_says(name: str) -> None:
    model, given = tiny(name), inputs(name)
    found, logits = of_all(model, *given), model(*given)
    p = logits.softmax(-1) if name != "vit" else logits.softmax(-1)[:, None]
    assert close(found.token_probability[-1], p)
    assert torch.equal(found.answer, p.argmax(-1))
    assert not found.answer_rank[-1].any()
    assert close(found.entropy[-1], -(p * p.log()).sum(-1))
    assert not found.kl[-1].any()
    assert (found.kl[:-1] > 0).all()


@pytest.mark.parametrize("name", [name for name in ALL if name not in TRANSLATORS])
def test_every_row_is_the_head_on_that_layers_stream(name: str) -> None:
    model, given = tiny(name), inputs(name)
    side = "decoder" if hasattr(model, "decoder") else "encoder"
    found = of_all(model, *given)
    with watch(model, f"{side}.0.residual_*") as seen:
        model(*given)
    stack = getattr(model, side)
    for row, tap in enumerate(("residual_before", "residual_after")):
        x = seen[f"{side}.0.{tap}"]
        p = model.head(x if stack.final_norm is None else stack.final_norm(x)).softmax(-1)
        p = p if p.ndim == 3 else p[:, None]
        assert close(found.token_probability[row], p)
        values, tokens = p.topk(5)
        assert torch.equal(found.top_tokens[row], tokens)
        assert close(found.top_probabilities[row], values)
        assert torch.equal(found.token_rank[row], p.argsort(dim=-1, descending=True).argsort(dim=-1))
    assert found.layers == (f"{side}.0.residual_before", f"{side}.0.residual_after", f"{side}.1.residual_after")


@pytest.mark.parametrize("name", TRANSLATORS)
def test_an_encoders_layer_is_read_by_the_decoder(name: str) -> None:
    """Where the later blocks write nothing, the decoder says the same of the layer before them."""
    model, given = tiny(name, n_encoder_layers=2), inputs(name)
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    found = of_all(model, *given, stream="encoder", source_real=real)
    assert close(found.token_probability[-1], model(*given, source_real=real).softmax(-1))
    if model.encoder.final_norm is not None:
        block = model.encoder[1]
        for part in (block.attention.output, block.feed_forward.down):
            part.weight.data.zero_()
            if part.bias is not None:
                part.bias.data.zero_()
        assert close(model(*given, source_real=real).softmax(-1), found.token_probability[1])


@pytest.mark.parametrize("at_once", [1, 3 * VOCAB, 1 << 20])
def test_how_much_is_read_at_once_changes_nothing(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = tiny("gpt2"), inputs("gpt2")
    whole, biggest, head = of_all(model, *given).to_dict(), 0, type(model.head).forward

    def counted(self: object, *args: Tensor) -> Tensor:
        nonlocal biggest
        logits = head(self, *args)
        biggest = max(biggest, logits.numel())
        return logits

    monkeypatch.setattr(lenses, "AT_ONCE", at_once)
    monkeypatch.setattr(type(model.head), "forward", counted)
    some = of_all(model, *given).to_dict()
    assert biggest <= max(at_once, VOCAB)
    assert some["top_tokens"] == whole["top_tokens"]
    assert some["answer_rank"] == whole["answer_rank"]


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer"])
def test_some_positions_are_those_of_all(name: str) -> None:
    model, given = tiny(name), inputs(name)
    whole, some = of_all(model, *given), of_all(model, *given, positions=[-1, 2])
    assert close(some.token_probability, whole.token_probability[:, :, [-1, 2]])
    assert some.positions == (given[-1].shape[1] - 1, 2)


@pytest.mark.parametrize("name", [name for name in ALL if name != "vit"])
def test_an_untrained_tuned_lens_is_the_logit_lens_bit_for_bit(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name)
    tuned = TunedLens(model)
    assert of_all(model, *given).to_dict() == of_all(model, *given, tuned=tuned).to_dict()
    tuned.bias.data += 0.1
    assert of_all(model, *given).to_dict() != of_all(model, *given, tuned=tuned).to_dict()


def test_a_tuned_lens_is_kept_and_belongs_to_one_model(tmp_path: Path) -> None:
    model, other, given = tiny("gpt2"), tiny("gpt2", seed=1), inputs("gpt2")
    tuned = TunedLens(model)
    tuned.weight.data.normal_(0, 0.1)
    tuned.save(tmp_path / "lens.safetensors")
    again = TunedLens.load(tmp_path / "lens.safetensors", tiny("gpt2"))
    assert of_all(model, *given, tuned=again).to_dict() == of_all(model, *given, tuned=tuned).to_dict()
    with pytest.raises(InputError, match="lens of another model"):
        TunedLens.load(tmp_path / "lens.safetensors", other)
    with pytest.raises(InputError, match="trained for another model"):
        of_all(other, *given, tuned=tuned)
    own = TunedLens(other)
    other.load_state_dict(model.state_dict())
    of_all(other, *given, tuned=tuned)
    with pytest.raises(InputError, match="for other weights"):
        of_all(other, *given, tuned=own)  # made with it, before it was trained on
    assert model_fingerprint(other) == model_fingerprint(model)
    other.decoder[0].attention.output.bias.data[0] += 1e-3
    assert model_fingerprint(other) != model_fingerprint(model)


def test_what_a_lens_cannot_look_through_is_refused() -> None:
    given = inputs("gpt2")
    with pytest.raises(InputError, match="no head, which a lens needs"):
        logit_lens(tiny("gpt2", task="hidden"), *given)
    with pytest.raises(InputError, match="leave out positions="):
        logit_lens(tiny("gpt2", task="classify", n_classes=3), *given, positions=[-1])
    with pytest.raises(InputError, match="has no stream 'encoder'"):
        logit_lens(tiny("gpt2"), *given, stream="encoder")
    with pytest.raises(InputError, match=rf"token {VOCAB} is outside"):
        logit_lens(tiny("gpt2"), *given, tokens=[VOCAB])
    with pytest.raises(InputError, match="position 6 of the target: it has 6"):
        logit_lens(tiny("t5"), *inputs("t5"), stream="encoder", positions=[6])
    with pytest.raises(InputError, match="leave it out"):
        logit_lens(tiny("t5"), *inputs("t5"), stream="encoder", tuned=TunedLens(tiny("t5")))
    with pytest.raises(InputError, match="in training"):
        logit_lens(tiny("gpt2").train(), *given)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_classifiers_are_read_where_they_read(name: str) -> None:
    model, ids = tiny(name, task="classify", n_classes=3), some_ids(2, 7)
    real = torch.tensor([[False] * 2 + [True] * 5, [True] * 5 + [False] * 2])
    found = logit_lens(model, ids, real=real, tokens=[0, 1, 2], top=9)
    assert close(found.token_probability[-1], model(ids, real=real).softmax(-1)[:, None])
    assert found.top_tokens.shape == (3, 2, 1, 3)
