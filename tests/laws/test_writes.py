"""The parts of the residual stream add up to the stream, at any place of it, and to the logits."""

import pytest
import torch
from helpers.tiny_models import ALL, TRANSLATORS, VOCAB, close, inputs, some_ids, tiny

from cutaway.errors import InputError
from cutaway.inside.residual.stream import decompose_residual
from cutaway.model.model import Model
from cutaway.model.precision import to_int8
from cutaway.model.tap import edit, tap_names, watch


def places(model: Model) -> list[str]:
    return [tap for tap in tap_names(model) if ".residual_" in tap]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_the_parts_are_the_whole_at_every_place(name: str, dtype: torch.dtype) -> None:
    model, given = tiny(name, dtype=dtype), inputs(name, dtype=dtype)
    with watch(model, "*.residual_*") as seen:
        model(*given)
    for at in places(model):
        found = decompose_residual(model, *given, at=at)
        assert close(found.total(), seen[at]), at
        assert close(found.stream, seen[at])
        assert len(set(found.names)) == len(found.names) == len(found.vectors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_a_model_in_16_bits_is_taken_apart_in_32(name: str, dtype: torch.dtype) -> None:
    """What is left between sum and stream is the model's own rounding, after each part."""
    model, given = tiny(name, dtype=dtype), inputs(name, dtype=dtype)
    for cross in ("heads", "source", "encoder") if name in TRANSLATORS else ("heads",):
        found = decompose_residual(model, *given, cross=cross)
        assert found.vectors.dtype == torch.float32
        assert (found.total() - found.stream).abs().max() < 0.03 * found.stream.abs().max()
        tokens = None if name == "vit" else [3, 1, 4]
        expected = model(*given).float() if tokens is None else model(*given)[..., tokens].float()
        assert (found.to_logits(tokens).total() - expected).abs().max() < 0.03 * expected.abs().max()


@pytest.mark.parametrize("name", ALL)
def test_the_parts_of_the_logits_are_the_logits(name: str) -> None:
    model, given = tiny(name), inputs(name)
    tokens = [3, 1, 4] if name != "vit" else None
    found = decompose_residual(model, *given).to_logits(tokens)
    expected = model(*given)
    assert close(found.total(), expected if tokens is None else expected[..., tokens])
    assert found.scores.std() > 0


POST_NORM = [f"encoder.{layer}.{part}_norm" for layer in range(2) for part in ("attention", "feed_forward")]
BERT = ["embedding.norm", *POST_NORM]
DECODER = [f"decoder.{layer}.{part}_norm" for layer in range(2) for part in ("attention", "cross", "feed_forward")]
TASKS = [
    ("bert", {"task": "pretrain"}, [*BERT, "head.masked.activation", "head.masked.norm"]),
    ("bert", {"task": "next_sentence"}, [*BERT, "head.pool.activation"]),
    ("bert", {"task": "classify", "n_classes": 3}, [*BERT, "head.pool.activation"]),
    ("bert", {"task": "classify", "n_classes": 3, "pooling": "mean"}, BERT),
    ("bert", {"task": "tag", "n_classes": 3}, BERT),
    ("gpt2", {"task": "classify", "n_classes": 3}, ["decoder.final_norm"]),
    ("llama", {"task": "regress"}, ["decoder.final_norm"]),
    ("gpt2", {"tied": False}, ["decoder.final_norm"]),
    ("transformer", {"output_bias": True}, DECODER),
    ("t5", {"gated": True, "tied": False, "scale_output": False}, ["decoder.final_norm"]),
]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(("name", "changes", "frozen"), TASKS, ids=str)
def test_every_head_can_be_taken_apart(name: str, changes: dict, frozen: list[str], real: bool) -> None:
    model, given = tiny(name, **changes), inputs(name)
    more = {"real": torch.ones(given[-1].shape, dtype=torch.bool)} if real else {}
    if real:
        more["real"][0, :2], more["real"][1, -2:] = False, False  # padding on either side
    expected = model(*given, **more)
    words = expected.shape[-1] == VOCAB
    found = decompose_residual(model, *given, **more).to_logits([3, 1] if words else None)
    assert close(found.total(), expected[..., [3, 1]] if words else expected)
    assert list(found.frozen) == frozen
    if not words:
        assert close(decompose_residual(model, *given, **more).to_logits([0]).total(), expected[..., :1])


@pytest.mark.parametrize("name", ["gpt2", "bert", "transformer", "vit"])
def test_some_positions_are_those_of_all(name: str) -> None:
    model, given = tiny(name), inputs(name)
    whole, some = decompose_residual(model, *given), decompose_residual(model, *given, positions=[0, -1])
    assert whole.names == some.names
    assert close(some.vectors, whole.vectors[:, :, [0, -1]])
    assert some.positions == (0, whole.vectors.shape[2] - 1)
    if name == "vit":
        assert close(some.to_logits().total(), model(*given))
        with pytest.raises(InputError, match=r"head\.pool reads positions that are not among positions=\[1\]"):
            decompose_residual(model, *given, positions=[1]).to_logits()


@pytest.mark.parametrize("name", ALL)
def test_a_head_that_is_taken_out_writes_nothing(name: str) -> None:
    model, given = tiny(name), inputs(name)
    side = "decoder" if hasattr(model, "decoder") else "encoder"

    def without_head_2(heads: torch.Tensor) -> torch.Tensor:
        return torch.cat([heads[:, :2], torch.zeros_like(heads[:, 2:3]), heads[:, 3:]], dim=1)

    with edit(model, {f"{side}.1.attention.heads": without_head_2}):
        found = decompose_residual(model, *given, at=f"{side}.1.residual_after_attention")
    assert not found.sum(f"{side}.1.attention.2").any()
    assert all(found.sum(f"{side}.1.attention.{head}").any() for head in (0, 1, 3))


def test_pre_norm_a_write_is_what_its_part_wrote() -> None:
    model, given = tiny("gpt2"), inputs("gpt2")
    with watch(model, "*") as seen:
        model(*given)
    found = decompose_residual(model, *given)
    assert close(found.sum("decoder.0.feed_forward"), seen["decoder.0.feed_forward.output"])
    assert close(found.sum("decoder.1.attention.*"), seen["decoder.1.attention.output"])
    assert close(found.sum("embedding.*"), seen["embedding.output"])
    assert found.names[:3] == ("embedding.tokens", "embedding.positions", "decoder.0.attention.0")


@pytest.mark.parametrize("cross", ["source", "encoder"])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_what_a_cross_head_writes_can_be_split(name: str, cross: str) -> None:
    model, given = tiny(name), inputs(name)
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    plain = decompose_residual(model, *given, source_real=real, positions=[1, -1])
    split = decompose_residual(model, *given, source_real=real, positions=[1, -1], cross=cross)
    for writer in plain.names:
        if ".cross." in writer and writer[-1].isdigit():
            assert close(split.sum(f"{writer} < *"), plain.sum(writer)), writer
    assert close(split.total(), plain.stream)
    assert close(split.to_logits([5]).total(), model(*given, source_real=real)[:, [1, -1]][..., [5]])
    if cross == "source":
        assert not split.sum("* < 6")[1].any()  # padding hands nothing over
    else:
        assert split.sum("* < encoder.0.attention.3").any()
        assert split.sum("* < source_embedding.tokens").any()


def test_each_position_may_have_a_token_of_its_own() -> None:
    model, ids = tiny("bert"), some_ids(2, 7)
    found = decompose_residual(model, ids).to_logits(ids)
    assert close(found.total(), model(ids).gather(-1, ids[..., None]))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_tokens_that_are_not_there_are_refused(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 7)
    found, some = decompose_residual(model, ids), decompose_residual(model, ids, positions=[-1])
    for token in (VOCAB, -1):
        with pytest.raises(InputError, match=rf"token {token} is outside 0…{VOCAB - 1}"):
            found.to_logits([3, token])
    for tokens in (ids[:1], ids[:, :1]):
        with pytest.raises(InputError, match=r"tokens of shape .* for positions of shape \(2, 7\)"):
            found.to_logits(tokens)
    with pytest.raises(InputError, match=r"tokens of shape \(2, 7\) for positions of shape \(2, 1\)"):
        some.to_logits(ids)
    assert close(some.to_logits(ids[:, -1:]).total(), found.to_logits(ids).total()[:, -1:])
    with pytest.raises(InputError, match="tokens are missing"):
        found.to_logits([])
    with pytest.raises(InputError, match=r"tokens are whole numbers, not torch\.bool"):
        found.to_logits([True])
    with pytest.raises(InputError, match="label 3 is outside 0…2"):
        decompose_residual(tiny("bert", task="tag", n_classes=3), ids).to_logits([3])


def test_what_stood_still_is_named_up_to_its_place() -> None:
    model, given = tiny("transformer"), inputs("transformer")
    assert decompose_residual(model, *given, at="decoder.0.residual_before", cross="encoder").frozen == ()
    found = decompose_residual(model, *given, at="decoder.0.residual_after_cross")
    assert found.frozen == ("decoder.0.attention_norm", "decoder.0.cross_norm")
    split = decompose_residual(model, *given, cross="encoder")
    assert sorted(split.frozen) == sorted([*POST_NORM, *DECODER])
    assert split.to_logits([1]).frozen == split.frozen
    assert split.to_dict()["frozen"] == list(split.frozen)
    pre = decompose_residual(tiny("transformer-pre-norm"), *given, cross="encoder")
    assert pre.frozen == ("encoder.final_norm",)
    assert pre.to_logits([1]).frozen == ("encoder.final_norm", "decoder.final_norm")


def test_the_encoders_stream_of_a_translator() -> None:
    model, given = tiny("transformer-pre-norm"), inputs("transformer-pre-norm")
    found = decompose_residual(model, *given, stream="encoder")
    with watch(model, "encoder.final_norm.output") as seen:
        model(*given)
    assert close(model.encoder.final_norm(found.total()), seen["encoder.final_norm.output"])
    with pytest.raises(InputError, match=r"no head reads encoder\.1\.residual_after"):
        found.to_logits([1])


def test_what_is_found_can_be_told() -> None:
    model, given = tiny("gpt2"), inputs("gpt2", batch=1)
    found = decompose_residual(model, *given, positions=[-1])
    told = found.to_dict()
    assert told["positions"] == [6]
    assert sum(row[0][0] for row in told["shares"]) == pytest.approx(1)
    assert found.to_logits([1, 2]).to_dict()["tokens"] == [1, 2]


def test_what_cannot_be_taken_apart_is_refused() -> None:
    model, given = tiny("gpt2"), inputs("gpt2")
    with pytest.raises(InputError, match=r"at='decoder\.7\.residual_after' is not in the stream of the decoder"):
        decompose_residual(model, *given, at="decoder.7.residual_after")
    with pytest.raises(InputError, match="no stream 'encoder': this model has decoder"):
        decompose_residual(model, *given, stream="encoder")
    with pytest.raises(InputError, match="has no cross-attention to split"):
        decompose_residual(model, *given, cross="source")
    with pytest.raises(InputError, match="tokens are missing"):
        decompose_residual(model, *given).to_logits()
    with pytest.raises(InputError, match="no writer matches"):
        decompose_residual(model, *given).sum("encoder.*")
    with pytest.raises(InputError, match="no head reads"):
        decompose_residual(model, *given, at="decoder.1.residual_before").to_logits([1])
    with pytest.raises(InputError, match="'reel' is neither an option here nor an input of GPT2"):
        decompose_residual(model, *given, reel=None)
    with pytest.raises(InputError, match="gives no scores"):
        decompose_residual(tiny("gpt2", task="hidden"), *given).to_logits([1])
    with pytest.raises(InputError, match="in training"):
        decompose_residual(tiny("gpt2").train(), *given)
    with pytest.raises(InputError, match="has 8-bit weights"):
        decompose_residual(to_int8(tiny("gpt2", dtype=torch.float32)), *given)
