"""Wrong shapes, sizes and ids end in an error that names the thing and the fix. (A session without shape checks.)"""

from collections.abc import Callable

import pytest
import torch
from helpers.tiny_models import DECODERS, READERS, TRANSLATORS, VOCAB, inputs, some_ids, tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway.errors import ConfigError, CutawayError, InputError
from cutaway.families import build, config_from_dict, sizes
from cutaway.families.gpt2 import GPT2Config
from cutaway.inside.attribution.explain import explain_translation
from cutaway.inside.circuits.alignment_heads import alignment_heads
from cutaway.inside.circuits.circuit_task import circuit_task
from cutaway.inside.patching.metrics import Logit
from cutaway.inside.residual.stream import decompose_residual
from cutaway.model.attention import SelfAttention
from cutaway.model.cache import Cache
from cutaway.model.embeddings import PatchEmbedding
from cutaway.model.model import DecoderModel, EncoderDecoderModel


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("wrong", [-1, VOCAB, 10**12])
def test_fault_15_an_id_outside_the_vocabulary_is_named(name: str, wrong: int) -> None:
    ids = some_ids(2, 4)
    ids[1, 2] = wrong
    with pytest.raises(InputError, match=f"token id {wrong} is outside 0…{VOCAB - 1}"):
        tiny(name)(ids)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_fault_15_in_a_source_and_in_a_target(name: str) -> None:
    good, bad = some_ids(2, 4), some_ids(2, 4).fill_(VOCAB)
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(InputError, match="token id 50 is outside"):
            tiny(name)(*pair)


@pytest.mark.parametrize("name", READERS)
def test_fault_14_length_at_the_limit_works_and_one_more_says_both(name: str) -> None:
    model = tiny(name)
    assert model(some_ids(1, 32)).shape[1] == 32
    with pytest.raises(InputError, match=r"33 tokens is longer than max_len=32"):
        model(some_ids(1, 33))


@pytest.mark.parametrize("name", DECODERS)
def test_fault_14_a_full_cache_works_and_one_more_says_both(name: str) -> None:
    model = tiny(name)
    assert isinstance(model, DecoderModel)
    cache = model.new_cache(1, 6)
    model(some_ids(1, 6), cache=cache)
    with pytest.raises(InputError, match=r"7 tokens do not fit into a cache of max_len=6"):
        model(some_ids(1, 1), cache=cache)
    assert cache.lengths.tolist() == [6]
    with pytest.raises(InputError, match=r"33 tokens is longer than this model's max_len=32"):
        model.new_cache(1, 33)


def test_fault_14_positions_beyond_the_table_are_refused_through_a_cache_of_another_model() -> None:
    model, longer = tiny("gpt2", max_len=8), tiny("gpt2", max_len=16)
    assert isinstance(longer, DecoderModel)
    cache = longer.new_cache(1, 16)
    model(some_ids(1, 8), cache=cache)
    with pytest.raises(InputError, match=r"9 tokens, those of the cache included, are more than max_len=8"):
        model(some_ids(1, 1), cache=cache)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (torch.zeros(3, dtype=torch.long), "expected \\(batch, seq\\)"),
        (torch.zeros(1, 0, dtype=torch.long), "hold no token"),
        (torch.zeros(0, 3, dtype=torch.long), "hold no token"),
        (torch.zeros(1, 3), "expected whole numbers"),
    ],
)
def test_ids_of_another_shape_or_kind_are_refused(ids: torch.Tensor, said: str) -> None:
    model = tiny("gpt2")
    with pytest.raises(InputError, match=said):
        model.hidden(ids)


@pytest.mark.parametrize(
    "real", [torch.ones(2, 4), torch.ones(2, 3, dtype=torch.bool), torch.ones(4, dtype=torch.bool)]
)
def test_a_mask_of_another_shape_or_kind_is_refused(real: torch.Tensor) -> None:
    model = tiny("gpt2")
    with pytest.raises(InputError, match="True where a token is real"):
        model.hidden(some_ids(2, 4), real=real)


def test_unknown_keyword_arguments_are_not_swallowed() -> None:
    with pytest.raises(TypeError, match="attention_mask"):
        tiny("gpt2")(some_ids(2, 4), attention_mask=torch.ones(2, 4))


def test_segments_are_refused_where_there_are_none() -> None:
    model = tiny("bert")
    model.embedding.segments = None
    with pytest.raises(InputError, match="no segment embeddings"):
        model(some_ids(1, 3), segments=torch.zeros(1, 3, dtype=torch.long))


def test_a_segment_out_of_range_is_named() -> None:
    with pytest.raises(InputError, match="segment 2 is outside 0…1"):
        tiny("bert")(some_ids(1, 3), segments=torch.tensor([[0, 1, 2]]))


def test_images_of_another_size_are_refused_with_both_sizes() -> None:
    with pytest.raises(InputError, match=r"\(3, 8, 9\) where this model reads \(3, 8, 8\)"):
        tiny("vit", dtype=torch.float32)(torch.zeros(1, 3, 8, 9))


def test_a_cache_of_another_batch_is_refused() -> None:
    model = tiny("gpt2")
    assert isinstance(model, DecoderModel)
    with pytest.raises(InputError, match="2 rows of ids for a cache of 3 rows"):
        model(some_ids(2, 4), cache=model.new_cache(3, 8))


def test_a_cache_and_packed_documents_do_not_go_together() -> None:
    model = tiny("gpt2")
    assert isinstance(model, DecoderModel)
    with pytest.raises(InputError, match="leave `documents` out"):
        model(some_ids(2, 4), cache=model.new_cache(2, 8), documents=torch.zeros(2, 4, dtype=torch.long))


def test_a_decoder_without_a_memory_says_what_is_missing() -> None:
    model = tiny("transformer")
    assert isinstance(model, EncoderDecoderModel)
    with pytest.raises(InputError, match="give `memory`, or a cache from new_memory_cache"):
        model.decode(some_ids(2, 4))
    memory = model.encode(some_ids(2, 4))
    with pytest.raises(InputError, match="leave `memory` and `memory_real` out"):
        model.decode(some_ids(2, 4), memory=memory, cache=model.new_memory_cache(memory, None, 8))


@pytest.mark.parametrize(
    ("size", "changes", "said"),
    [
        ("gpt2", {"d_model": 500, "n_heads": 8}, "d_model=500 is not divisible by n_heads=8"),
        ("gpt2", {"d_model": 10**9}, "d_model=1000000000 is not between 1 and"),
        ("gpt2", {"n_layers": -3}, "n_layers=-3 is not between 1 and 1024"),
        ("gpt2", {"n_layers": 0}, "n_layers=0"),
        ("gpt2", {"n_layers": True}, "n_layers=True is not int"),
        ("gpt2", {"n_layers": "12"}, "n_layers='12' is not int"),
        ("gpt2", {"n_embd": 5}, "unknown key 'n_embd'"),
        ("gpt2", {"dropout": 1.0}, "dropout=1.0 would drop everything"),
        ("gpt2", {"dropout": -0.1}, "dropout=-0.1"),
        ("gpt2", {"norm_eps": float("nan")}, "norm_eps=nan"),
        ("gpt2", {"activation": "swoosh"}, "activation='swoosh' is not one of relu, gelu"),
        ("gpt2", {"task": "translate"}, "task='translate' is not one of language_model"),
        ("gpt2", {"end_ids": [50257]}, "names token 50257"),
        ("gpt2", {"start_id": -1}, "names token -1"),
        ("bert-base", {"task": "classify"}, "needs n_classes"),
        ("bert-base", {"task": "classify", "n_classes": 2, "labels": ["a"]}, "1 labels for n_classes=2"),
        ("llama2-7b", {"n_kv_heads": 5}, "n_heads=32 is not divisible by n_kv_heads=5"),
        ("stories15m", {"d_model": 18}, "d_head=3 is odd"),
        ("transformer-base", {"wiring": "sideways"}, "wiring='sideways' is not one of post_norm, pre_norm"),
        ("transformer-base", {"positions": "lunar"}, "positions='lunar'"),
        ("vit-b-16", {"patch_size": 15}, "image_size=224 is not divisible by patch_size=15"),
    ],
)
def test_numbers_that_make_no_model_are_refused_by_name(size: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", "\\(")):
        build(size, device="meta", **changes)


def test_unknown_sizes_families_and_tasks_name_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no size is called 'gtp2'; known: .*gpt2"):
        build("gtp2")
    with pytest.raises(ConfigError, match="no family is called 'rnn'"):
        config_from_dict({"family": "rnn"})
    with pytest.raises(ConfigError, match="a config names its `family`"):
        config_from_dict({})


def test_parts_by_themselves_refuse_what_cannot_be() -> None:
    with pytest.raises(ConfigError, match="n_heads=4 is not divisible by n_kv_heads=3"):
        SelfAttention(8, 4, n_kv_heads=3)
    with pytest.raises(ConfigError, match="image_size=9 is not divisible"):
        PatchEmbedding(9, 2, 3, 8)


@pytest.mark.parametrize("size", sizes())
def test_every_config_comes_back_from_its_dictionary(size: str) -> None:
    config = sizes()[size]
    assert config_from_dict(config.to_dict()) == config


def test_all_our_errors_have_one_base() -> None:
    assert issubclass(InputError, CutawayError)
    assert issubclass(ConfigError, ValueError)
    assert Cache.empty(1, 2, 3, 4, 5).max_len == 3


def test_sources_and_targets_come_in_pairs() -> None:
    model = tiny("transformer")
    assert isinstance(model, EncoderDecoderModel)
    with pytest.raises(InputError, match="4 targets for 2 sources"):
        model(some_ids(2, 5), some_ids(4, 3))
    with pytest.raises(InputError, match="3 targets for 2 sources"):
        model.decode(some_ids(3, 4), memory=model.encode(some_ids(2, 5)))


@pytest.mark.parametrize(
    "wrong", [torch.ones(2, 4, dtype=torch.bool), torch.ones(1, 5, dtype=torch.bool), torch.ones(2, 5)]
)
def test_memory_real_of_another_shape_or_kind_is_refused(wrong: torch.Tensor) -> None:
    model = tiny("transformer")
    assert isinstance(model, EncoderDecoderModel)
    memory = model.encode(some_ids(2, 5))
    with pytest.raises(InputError, match="`memory_real` is"):
        model.decode(some_ids(2, 3), memory=memory, memory_real=wrong)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(1, 4, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 4)]
)
def test_documents_and_segments_of_another_shape_or_kind_are_refused(wrong: torch.Tensor) -> None:
    reader, pair = tiny("gpt2"), tiny("bert")
    for model in (reader, pair):
        with pytest.raises(InputError, match="`documents` is"):
            model(some_ids(2, 4), documents=wrong)
    with pytest.raises(InputError, match="`segments` is"):
        pair(some_ids(2, 4), segments=wrong)


def test_a_cache_of_another_model_is_refused() -> None:
    model, other = tiny("gpt2"), tiny("gpt2", n_layers=3)
    assert isinstance(model, DecoderModel)
    with pytest.raises(InputError, match=r"a cache for .* = \(2, 4, 6\) in a model of \(3, 4, 6\)"):
        other(some_ids(2, 4), cache=model.new_cache(2, 8))


def test_pictures_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"images of torch\.float64 for a model of torch\.float32"):
        tiny("vit", dtype=torch.float32)(torch.zeros(1, 3, 8, 8, dtype=torch.float64))


@pytest.mark.parametrize(("name", "most"), [("n_layers", 1024), ("max_len", 16_777_216), ("vocab_size", 4_194_304)])
def test_a_number_at_its_limit_is_a_number(name: str, most: int) -> None:
    for value in (1, most):
        assert getattr(GPT2Config(**{"end_ids": (0,), name: value}), name) == value
    with pytest.raises(ConfigError, match=f"{name}={most + 1} is not between 1 and {most}"):
        GPT2Config(**{name: most + 1})


@pytest.mark.parametrize(("name", "value"), [("n_layers", "12"), ("n_layers", 2.0), ("tied", 1), ("activation", 3)])
def test_the_constructor_is_as_strict_as_the_file(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        GPT2Config(**{name: value})


@pytest.mark.parametrize(
    "changes", [{"n_buckets": 2}, {"n_buckets": 6}, {"max_distance": 16}, {"n_buckets": 64, "max_distance": 32}]
)
def test_t5_refuses_buckets_that_cannot_be_filled(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="n_buckets="):
        build("t5-small", device="meta", **changes)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: alignment_heads(tiny("gpt2"), byte_level(), ["a"], ["b"]), "alignment heads are for translators"),
        (lambda: explain_translation(tiny("gpt2", vocab_size=400), byte_level(), "a", "b"), "does not translate"),
        (
            lambda: decompose_residual(tiny("transformer"), *inputs("transformer"), cross="target"),
            "cross='target' is not one of",
        ),
        (
            lambda: circuit_task(
                tiny("gpt2"), some_ids(2, 4), metric=Logit(3), reference=(some_ids(2, 4),), how="median"
            ),
            "how='median' is not one of",
        ),
    ],
)
def test_questions_of_another_kind_are_refused(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask()


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize(("scaling", "numbers"), [("linear", (4.0,)), ("llama3", (8.0, 1.0, 4.0, 16.0))])
def test_every_number_of_a_rotary_scaling_is_above_0_and_finite(
    scaling: str, numbers: tuple[float, ...], wrong: float
) -> None:
    tiny("llama", rotary_scaling=scaling, rotary_scaling_numbers=numbers)
    for place in range(len(numbers)):
        bad = tuple(wrong if i == place else number for i, number in enumerate(numbers))
        with pytest.raises(ConfigError, match=rf"rotary_scaling='{scaling}' takes .*, each above 0, not"):
            tiny("llama", rotary_scaling=scaling, rotary_scaling_numbers=bad)
    for bad in (numbers[:-1], (*numbers, 1.0), ()):
        with pytest.raises(ConfigError, match="takes"):
            tiny("llama", rotary_scaling=scaling, rotary_scaling_numbers=bad)
    with pytest.raises(ConfigError, match="without rotary_scaling"):
        tiny("llama", rotary_scaling_numbers=numbers)
