"""What a model costs is measured on the meta device; here it is held against formulas and against real tensors."""

import json

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny_models as tiny
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from cutaway.errors import InputError
from cutaway.families import build, config_of
from cutaway.inside import cost as meters
from cutaway.inside.cost import Meter, measured_cost
from cutaway.inside.description import Description, PartCount, describe, example_inputs
from cutaway.model.kernels import attend
from cutaway.model.model import Model
from cutaway.model.norms import RMSNorm


def part(found: Description | PartCount, path: str) -> PartCount:
    for name in path.split("."):
        (found,) = (inner for inner in found.parts if inner.name == name)
    return found


def lengths(name: str, inputs: tuple[torch.Tensor, ...]) -> dict[str, int]:
    if name == "vit":
        return {}
    return {"length": inputs[-1].shape[1]} | ({"source_length": inputs[0].shape[1]} if len(inputs) == 2 else {})


# --- FLOPs ----------------------------------------------------------------------------------------------------------


def test_gpt2_does_the_flops_of_the_formula():
    found = describe(config_of("gpt2"), batch=2, length=1024)
    n_layers, d_model, d_ff, vocab_size = 12, 768, 3072, 50257
    in_products = n_layers * (4 * d_model**2 + 2 * d_model * d_ff) + vocab_size * d_model
    assert found.n_tokens == 2048
    assert found.flops.products / found.n_tokens == 2 * in_products
    assert found.flops.look_ups / found.n_tokens == 4 * n_layers * d_model * 1024
    assert found.flops.training == 3 * found.flops.forward


def test_only_attention_grows_with_the_length():
    short, long = (describe(config_of("gpt2"), length=n, batch=1) for n in (64, 128))
    assert long.flops.products == 2 * short.flops.products
    assert long.flops.look_ups == 4 * short.flops.look_ups


@pytest.mark.parametrize("name", tiny.ALL)
def test_every_family_does_the_flops_that_torch_counts(name):
    model, inputs = tiny.tiny(name, dtype=torch.float32), tiny.inputs(name, dtype=torch.float32)
    found = describe(model.config, batch=2, **lengths(name, inputs))
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(*(x.to("meta") for x in inputs))
    assert found.flops.forward == counter.get_total_flops()
    assert sum(one.flops * one.times for one in found.parts) == found.flops.forward


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tiny.ALL)
def test_training_keeps_on_the_cpu_what_it_keeps_on_meta(name, monkeypatch):
    monkeypatch.delitem(meters.FUSED, F.rms_norm)  # spelled out on the CPU
    monkeypatch.setattr(attend, "LANES", 0)  # rows shorter than a register take a way of their own on the CPU
    model, inputs = tiny.tiny(name, dtype=torch.float32, dropout=0.0), tiny.inputs(name, dtype=torch.float32)
    if name == "t5":  # the CPU has no kernel for a bias that learns
        model.source_bias.requires_grad_(False)
        model.target_bias.requires_grad_(False)
    really = kept_bytes(model.train(), inputs)
    model.to("meta")
    inputs = tuple(x.to("meta") for x in inputs)
    with measured_cost(model, *inputs, gradients=True) as meter:
        output = model(*inputs)
        assert meter.alive == really
    assert output.requires_grad
    if name != "t5":
        assert describe(model.config, batch=2, **lengths(name, inputs)).memory.kept == really


def kept_bytes(model: Model, inputs: tuple[torch.Tensor, ...]) -> int:
    """The storages that autograd saves, and the output's, without those that were there before."""
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        keep(model(*inputs))
    before = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers(), *inputs)}
    return sum(tensor.untyped_storage().nbytes() for key, tensor in kept.items() if key not in before)


@pytest.mark.parametrize("name", tiny.ALL)
def test_inference_peaks_on_the_cpu_where_it_peaks_on_meta(name, monkeypatch):
    monkeypatch.delitem(meters.FUSED, F.rms_norm)
    model, inputs = tiny.tiny(name, dtype=torch.float32), tiny.inputs(name, dtype=torch.float32)
    tokens = inputs[-1].numel()
    with torch.no_grad(), Meter(model, *inputs) as really:
        model(*inputs)
    found = describe(model.config, batch=2, **lengths(name, inputs))
    # The checks of ids and positions run on the CPU only; they look at a few numbers per token.
    assert found.memory.peak <= really.peak <= found.memory.peak + 16 * tokens


def test_dropout_keeps_one_byte_for_each_number_that_it_may_drop():
    with_, without = (describe(config_of("gpt2").with_(dropout=p), length=64).memory.kept for p in (0.1, 0.0))
    assert with_ - without == (1 + 2 * 12) * 64 * 768


def test_rms_norm_keeps_its_input_and_one_number_for_each_vector():
    x = torch.empty(2, 5, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
    norm = RMSNorm(16).to(device="meta", dtype=torch.bfloat16)
    with measured_cost(norm, x, gradients=True) as meter:
        output = norm(x)
        assert meter.alive == output.nbytes + 2 * 5 * 4


def test_a_training_step_holds_weights_gradients_and_two_moments():
    memory = describe(config_of("gpt2"), length=64, dtype=torch.bfloat16).memory
    assert (memory.weights, memory.gradients, memory.adam) == tuple(n * 2 * 124_439_808 for n in (1, 1, 2))
    assert memory.output == 64 * 50257 * 2
    assert memory.kept > memory.output + 12 * 64 * 768 * 2
    assert memory.training == memory.weights + memory.gradients + memory.adam + memory.kept


@pytest.mark.parametrize(
    ("name", "n_layers", "n_kv_heads", "d_head"),
    [("gpt2", 12, 12, 64), ("smollm2-135m", 30, 3, 64)],
)
def test_the_cache_is_keys_and_values_of_every_layer(name, n_layers, n_kv_heads, d_head):
    memory = describe(config_of(name), batch=3, length=32, dtype=torch.bfloat16).memory
    assert memory.cache_per_token == 2 * n_layers * n_kv_heads * d_head * 2
    assert memory.cache == 3 * 32 * memory.cache_per_token
    assert memory.inference == memory.weights + memory.peak + memory.cache


def test_a_translator_also_caches_its_source():
    memory = describe(config_of("transformer-base"), batch=2, length=10, source_length=30).memory
    assert memory.cache_per_token == memory.cache_per_source_token == 2 * 6 * 512 * 4
    assert memory.cache == 2 * (10 + 30) * memory.cache_per_token


def test_an_encoder_caches_nothing():
    assert describe(config_of("bert-tiny"), length=8).memory.cache == 0


# --- the tree -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "transformer-base", "t5-v1.1-small", "llama2-7b", "vit-b-16"])
def test_the_tree_adds_up_to_the_model(name):
    found = describe(config_of(name), **({} if name == "vit-b-16" else {"length": 16}))

    def check(parts: tuple[PartCount, ...], total: int) -> None:
        assert sum(one.times * one.parameters for one in parts) == total
        for one in parts:
            if one.parts:
                check(one.parts, one.parameters)

    check(found.parts, found.parameters)
    assert found.parameters == build(name, device="meta").n_parameters()


def test_equal_blocks_are_folded_and_different_ones_are_not():
    found = describe(config_of("gpt2"), length=8)
    assert [(one.name, one.times) for one in part(found, "decoder").parts] == [("0…11", 12), ("final_norm", 1)]
    assert [one.name for one in part(describe(config_of("gpt2").with_(n_layers=1), length=8), "decoder").parts] == [
        "0",
        "final_norm",
    ]


def test_parts_stand_in_the_order_in_which_they_run():
    gpt2, gpt = (describe(config_of(name), length=8) for name in ("gpt2", "gpt"))
    pre_norm = ["attention_norm", "attention", "feed_forward_norm", "feed_forward"]
    post_norm = ["attention", "attention_norm", "feed_forward", "feed_forward_norm"]
    assert [one.name for one in part(gpt2, "decoder.0…11").parts] == pre_norm
    assert [one.name for one in part(gpt, "decoder.0…11").parts] == post_norm


def test_tied_matrices_are_counted_once_and_named():
    tied, own = (describe(config_of("gpt2").with_(tied=tied), length=8) for tied in (True, False))
    assert part(tied, "head").tied_to == "embedding.tokens"
    assert (part(tied, "head").parameters, part(own, "head").parameters) == (0, 50257 * 768)
    assert part(own, "head").tied_to is None
    assert part(describe(config_of("bert-base"), length=8), "head.masked.words").parameters == 30522  # its bias
    assert (
        part(describe(config_of("t5-small"), length=8), "source_embedding.tokens").tied_to == "target_embedding.tokens"
    )


def test_leaves_show_the_shapes_of_their_weights():
    found = describe(config_of("gpt2"), length=8)
    up = part(found, "decoder.0…11.feed_forward.up")
    assert (up.kind, up.shapes, up.parts) == ("Linear", {"weight": (3072, 768), "bias": (3072,)}, ())
    picture = describe(config_of("vit-b-16"))
    assert part(picture, "embedding.class_token").shapes == {"class_token": (768,)}
    table = part(describe(config_of("transformer-base"), length=8), "target_embedding.positions")
    assert (table.computed, table.parameters, table.shapes) == (True, 0, {"table": (1024, 512)})


# --- what is described, and what is not ----------------------------------------------------------------------------


def test_a_model_too_large_for_this_machine_is_described():
    found = describe(config_of("llama2-7b"), length=4096, dtype=torch.bfloat16)
    assert found.parameters == 6_738_415_616
    assert found.memory.cache_per_token == 524_288


def test_without_a_length_the_model_says_it():
    assert describe(config_of("bert-tiny")).length == 512
    assert describe(config_of("llama2-7b").with_(n_layers=1)).length == 1024
    assert describe(config_of("vit-b-16")).length == 197
    both = describe(config_of("t5-small"))
    assert (both.source_length, both.length) == (1024, 1024)


def test_too_long_is_said_by_the_model():
    with pytest.raises(InputError, match="a sequence of 1025 tokens is longer than max_len=1024"):
        describe(config_of("gpt2"), length=1025)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("vit-b-16", {"length": 196}, "always reads 197 positions"),
        ("gpt2", {"source_length": 5}, "reads no source"),
        ("gpt2", {"batch": 0}, "batch=0"),
        ("gpt2", {"length": 0}, "no token"),
    ],
)
def test_what_cannot_be_read_is_refused(name, wrong, message):
    with pytest.raises(InputError, match=message):
        describe(config_of(name), **wrong)


def test_a_description_is_json():
    found = describe(config_of("transformer-tiny"), length=8).to_dict()
    again = json.loads(json.dumps(found))
    assert again["config"]["family"] == "transformer"
    assert again["memory"]["training"] == found["memory"]["training"] > 0
    assert again["flops_per_token"]["forward"] * 16 == again["flops"]["forward"]
    assert again["parts"][0]["parts"][0]["tied_to"] == "target_embedding.tokens"


def test_the_meter_takes_its_hooks_off():
    model = build("gpt2", device="meta", n_layers=1)
    with measured_cost(model, gradients=False) as meter:
        model(*example_inputs(model, 1, 4, None))
    counted = meter.flops("decoder")
    model(*example_inputs(model, 1, 4, None))
    assert meter.flops("decoder") == counted > 0
    assert not any(inner._forward_pre_hooks or inner._forward_hooks for inner in model.modules())
