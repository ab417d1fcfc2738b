"""In training each number is dropped or made up for, at every place where a family drops; otherwise nothing happens."""

import re
from typing import Any

import pytest
import torch
from helpers.tiny_models import ALL, inputs, some_ids, tiny
from torch import Tensor, nn

from cutaway.model.attention import Attention, CrossAttention, SelfAttention
from cutaway.model.blocks import Block, Wiring, post_norm, pre_norm
from cutaway.model.dropout import hashed_dropout
from cutaway.model.embeddings import Embedding, PatchEmbedding, TokenEmbedding
from cutaway.model.feed_forward import FeedForward, GatedFeedForward
from cutaway.model.heads import ClassificationHead, First, Pooler, TaggingHead
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import edit, watch

WRITER = {"encoder.*", "encoder.*.attention", "decoder.*", "decoder.*.attention", "decoder.*.cross"}
TRANSLATOR = WRITER | {"source_embedding", "target_embedding"}
ENCODER = {"embedding", "encoder.*", "encoder.*.attention"}
DECODER = {"embedding", "decoder.*", "decoder.*.attention"}
FEATURES = {"encoder.*.feed_forward", "decoder.*.feed_forward"}

# family, what makes it drop out everywhere, and where that is
CASES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "transformer": ("transformer", {"attention_dropout": 0.5}, TRANSLATOR),
    "transformer-pre-norm": ("transformer-pre-norm", {"attention_dropout": 0.5}, TRANSLATOR),
    "transformer-rotary": ("transformer-rotary", {"attention_dropout": 0.5}, TRANSLATOR),
    "t5": ("t5", {}, TRANSLATOR | FEATURES | {"dropout"}),
    "t5-gated": ("t5", {"gated": True}, TRANSLATOR | FEATURES | {"dropout"}),
    "bert": ("bert", {}, ENCODER),
    "bert-classify": ("bert", {"task": "classify", "n_classes": 5}, ENCODER | {"head"}),
    "bert-tag": ("bert", {"task": "tag", "n_classes": 5}, ENCODER | {"head"}),
    "roberta": ("roberta", {}, ENCODER),
    "roberta-classify": ("roberta", {"task": "classify", "n_classes": 5}, ENCODER | {"head", "head.pool"}),
    "roformer": ("roformer", {}, ENCODER),
    "roformer-classify": ("roformer", {"task": "classify", "n_classes": 5}, ENCODER | {"head", "head.pool"}),
    "gpt": ("gpt", {}, DECODER),
    "gpt2": ("gpt2", {}, DECODER),
    "llama": ("llama", {}, DECODER),
    "llama-window": ("llama-window", {}, DECODER),
    "vit": ("vit", {}, ENCODER),
}
EVERY_PLACE = [(case, place) for case, (_, _, places) in CASES.items() for place in sorted(places)]


def dropping(case: str) -> Model:
    name, changes, _ = CASES[case]
    return tiny(name, dropout=0.5, **changes)


def droppers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Whatever can drop out, and its place: `encoder.*` for what the blocks write, `encoder.*.attention` …"""
    return [
        (re.sub(r"\.\d+", ".*", path.removesuffix(".dropout")), part)
        for path, part in model.named_modules()
        if isinstance(part, nn.Dropout | Attention)
    ]


def chance(part: nn.Module) -> float:
    return part.p if isinstance(part, nn.Dropout) else part.dropout


def only_at(model: Model, place: str) -> Model:
    """The model with dropout at this place alone; "" for nowhere."""
    for here, part in droppers(model):
        if here != place:
            setattr(part, "p" if isinstance(part, nn.Dropout) else "dropout", 0.0)
    return model


def test_every_family_is_here() -> None:
    assert {name for name, _, _ in CASES.values()} == set(ALL)


@pytest.mark.parametrize("case", CASES)
def test_a_family_drops_out_where_its_paper_does(case: str) -> None:
    assert {place for place, part in droppers(dropping(case)) if chance(part)} == CASES[case][2]


@pytest.mark.parametrize(("case", "place"), EVERY_PLACE)
def test_dropout_at_one_place_shows_in_training_and_only_there(case: str, place: str) -> None:
    name, changes, _ = CASES[case]
    model, given = only_at(dropping(case), place), inputs(name)
    without = tiny(name, dropout=0.0, **changes | dict.fromkeys(changes.keys() & {"attention_dropout"}, 0.0))
    trained = [model.train()(*given) for _ in range(2)]
    evaluated = [model.eval()(*given) for _ in range(2)]
    assert not torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], evaluated[0])
    assert torch.equal(evaluated[0], evaluated[1])
    assert torch.equal(evaluated[0], without(*given))


@pytest.mark.parametrize("case", CASES)
def test_without_dropout_training_changes_no_bit(case: str) -> None:
    model, given = only_at(dropping(case), ""), inputs(CASES[case][0])
    assert torch.equal(model.train()(*given), model.eval()(*given))


# What exactly happens at a place: with a chance of one half, a number becomes 0 or twice itself.


def dropped_or_doubled(dropped: Tensor, whole: Tensor) -> bool:
    """Some numbers are gone and the others are twice what they were."""
    gone = dropped.abs() <= 1e-12
    return bool(gone.any()) and not bool(gone.all()) and torch.allclose(dropped, torch.where(gone, 0.0, 2 * whole))


def some_states(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("wiring", [post_norm, pre_norm])
def test_what_each_sublayer_writes_is_dropped_or_doubled(wiring: Wiring) -> None:
    attention, cross, feed_forward = SelfAttention(12, 3), CrossAttention(12, 3), FeedForward(12, 20)
    # without norms the stream shows what was added to it
    block = Block(attention, feed_forward, norm=nn.Identity, wiring=wiring, cross=cross, dropout=0.5).double()
    with watch(block, "*") as seen:
        block(some_states(2, 5, 12), memory=cross.remember(some_states(2, 6, 12)))
    stream = [seen[f"residual_{when}"] for when in ("before", "after_attention", "after_cross", "after")]
    for i, sublayer in enumerate(("attention", "cross", "feed_forward")):
        assert dropped_or_doubled(stream[i + 1] - stream[i], seen[f"{sublayer}.output"]), sublayer


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_the_pattern_in_use_is_dropped_or_doubled_and_the_one_on_show_is_whole(across: bool, explicit: bool) -> None:
    kind = CrossAttention if across else SelfAttention
    attention, x = kind(18, 3, dropout=0.5).double(), some_states(2, 6, 18)
    edits = {"value": lambda value: torch.eye(6, dtype=value.dtype).expand_as(value)}  # hands the pattern itself over
    if explicit:
        edits["pattern"] = lambda pattern: pattern
    with watch(attention, "pattern", "heads") as seen, edit(attention, edits):
        attention(x, attention.remember(x)) if across else attention(x)
    assert torch.allclose(seen["pattern"].sum(-1), torch.ones(2, 3, 6, dtype=torch.float64))
    assert dropped_or_doubled(seen["heads"], seen["pattern"])


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_features_are_dropped_or_doubled(kind: type[FeedForward] | type[GatedFeedForward]) -> None:
    part = kind(12, 12, "gelu", dropout=0.5).double()
    part.down = nn.Identity()
    with watch(part, "features", "output") as seen:
        part(some_states(2, 5, 12))
    assert dropped_or_doubled(seen["output"], seen["features"])


def embeddings() -> list[tuple[nn.Module, tuple[Tensor, ...]]]:
    tokens = Embedding(TokenEmbedding(50, 12), dropout=0.5)
    patches = PatchEmbedding(8, 4, 3, 12, dropout=0.5)
    return [(tokens, (some_ids(2, 5), torch.arange(5)[None])), (patches, (some_states(2, 3, 8, 8),))]


@pytest.mark.parametrize("which", [0, 1], ids=["tokens", "patches"])
def test_an_embedding_is_dropped_or_doubled_and_stays_itself_on_average(which: int) -> None:
    part, given = embeddings()[which]
    part = part.double()
    whole = part.eval()(*given)
    passes = torch.stack([part.train()(*given) for _ in range(2000)])
    assert dropped_or_doubled(passes[0], whole)
    # each pass adds ±whole, so that the mean strays by |whole|/√2000; over 120 numbers six times that is never seen
    assert ((passes.mean(0) - whole).abs() <= 6 * whole.abs() / 2000**0.5 + 1e-12).all()


def test_what_a_head_reads_is_dropped_or_doubled() -> None:
    hidden = some_states(2, 5, 12)
    tags, classes = TaggingHead(12, 3, dropout=0.5), ClassificationHead(First(), 12, 3, dropout=0.5)
    tags.classes = classes.classes = nn.Identity()
    pooler = Pooler(12, dropout=0.5)
    pooler.dense, pooler.activation = nn.Identity(), nn.Identity()
    assert dropped_or_doubled(tags(hidden), hidden)
    assert dropped_or_doubled(classes(hidden), hidden[:, 0])
    assert dropped_or_doubled(pooler(hidden), hidden[:, 0])


def test_what_leaves_each_stack_of_t5_is_dropped_or_doubled() -> None:
    model, (source, target) = only_at(dropping("t5"), "dropout"), inputs("t5")
    assert isinstance(model, EncoderDecoderModel)
    memory = model.encode(source)
    hidden = model.decode(target, memory=memory)
    model.train()
    assert dropped_or_doubled(model.encode(source), memory)
    assert dropped_or_doubled(model.decode(target, memory=memory), hidden)


# On a GPU, compiled training draws its numbers from a hash of place and call; the hash is the same anywhere.


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_hashed_places_are_dropped_or_made_up_for_and_differ_from_call_to_call(p: float) -> None:
    torch.manual_seed(0)
    x = some_states(40, 50, 20).abs() + 1
    found = [hashed_dropout(x, p) for _ in range(2)]
    gone = [one == 0 for one in found]
    for one, zero in zip(found, gone, strict=True):
        torch.testing.assert_close(one, torch.where(zero, 0.0, x / (1 - p)), atol=0, rtol=1e-6)
    # five standard deviations, of 40,000 places: how many go, and how many together with their neighbour or their twin
    together = [gone[0], gone[1], *(gone[0] & gone[0].roll(1, axis) for axis in range(3)), gone[0] & gone[1]]
    for places, share in zip(together, [p, p, *[p * p] * 4], strict=True):
        assert abs(places.double().mean() - share) < 5 * (share * (1 - share) / x.numel()) ** 0.5 * 1.5
    torch.manual_seed(0)
    assert torch.equal(hashed_dropout(x, p), found[0])
