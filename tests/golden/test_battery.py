"""Hand-set weights in our own attention and feed-forward do what the lecture's masks do. (mission: parts 4, 5, 12)

    attention      at `ran`, a one-hot query finds the key of `battery` or `program`, and brings that word
    feed-forward   makes of `ran` and that word the feature (battery, ran) or (program, ran)
    and its W₂     says what follows from it: down, or please

Three things the lecture leaves open. Where the answer is written: our residual stream has a part for what was read,
the bias, and a part for what comes next. Where to look when nothing tells: softmax has to look somewhere, so everybody
finds <sos>, worth nothing, half as good as what a mask keeps. And softmax: ours is so sharp that all numbers are exact.
"""

import pytest
import torch
from torch import Tensor, nn, tensor

from cutaway.before import MaskedSkips, Skips, sentences
from cutaway.model.attention import SelfAttention
from cutaway.model.blocks import Block, pre_norm
from cutaway.model.embeddings import TokenEmbedding
from cutaway.model.feed_forward import FeedForward
from cutaway.model.heads import LanguageModelHead
from cutaway.model.masks import CAUSAL
from cutaway.model.tap import watch

LINES = sentences(
    "check the program log and find out whether it ran please\n"
    "check the battery log and find out whether it ran down please"
)
MASKED = MaskedSkips(Skips(LINES), {"ran": {"battery", "program"}})
WORDS = ["<sos>", *MASKED.words]
N = len(WORDS)
BIAS, D_MODEL = N, 2 * N + 1  # the stream: the word that was read, the bias, the word that comes next


def at(word: str) -> int:
    return WORDS.index(word)


def ids(text: str) -> Tensor:
    return tensor([[at(word) for word in ["<sos>", *text.split()]]])


def embedding() -> TokenEmbedding:
    part = TokenEmbedding(N, D_MODEL)
    part.matrix.data = torch.cat([torch.eye(N), torch.ones(N, 1), torch.zeros(N, N)], dim=1)
    return part


def attention() -> SelfAttention:
    part = SelfAttention(D_MODEL, 1, bias=False, scale=1000.0)
    query, key, value = torch.zeros(3, D_MODEL, D_MODEL)  # each out × in
    query[: N + 1, : N + 1] = torch.eye(N + 1)  # the word, one-hot, and the bias
    key[at("ran"), at("battery")] = key[at("ran"), at("program")] = 1  # all masks: `ran` keeps these two
    key[BIAS, at("<sos>")] = 1 / 2  # found by everybody who finds nothing better
    value[1:N, 1:N] = torch.eye(N - 1)  # the word, one-hot; of <sos> nothing
    part.query_key_value.weight.data = torch.cat([query, key, value])
    part.output.weight.data = torch.eye(D_MODEL)
    return part


def feed_forward() -> FeedForward:
    part = FeedForward(D_MODEL, 2, "relu", bias=False)
    up, down = torch.zeros(2, D_MODEL), torch.zeros(D_MODEL, 2)
    up[:, [at("battery"), at("program"), at("ran"), BIAS]] = tensor([[1.0, -1, 1, -1], [-1, 1, 1, -1]])
    down[BIAS + 1 + at("down"), 0] = down[BIAS + 1 + at("please"), 1] = (
        1  # (battery, ran) → down, (program, ran) → please
    )
    part.up.weight.data, part.down.weight.data = up, down
    return part


class SetByHand(nn.Module):
    """A decoder of one block, wired as GPT-2's, without norms: the lecture has none yet."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = embedding(), LanguageModelHead(D_MODEL, N)
        self.block = Block(attention(), feed_forward(), norm=nn.Identity, wiring=pre_norm)
        self.head.matrix.data = torch.cat([torch.zeros(N, N + 1), torch.eye(N)], dim=1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.block(self.embedding(ids), CAUSAL))


@pytest.mark.parametrize("line", LINES)
def test_behind_ran_it_says_what_the_masked_chain_says_and_elsewhere_nothing(line: list[str]) -> None:
    for place, logits in enumerate(SetByHand()(ids(" ".join(line)))[0].tolist()):
        past = line[:place]  # <sos> is at place 0
        told = MASKED.probabilities(past) if past[-1:] == ["ran"] else {}
        assert logits == [told.get(word, 0.0) for word in WORDS]


@pytest.mark.parametrize(("there", "features", "follows"), [("battery", [1, 0], "down"), ("program", [0, 1], "please")])
def test_each_step_by_itself(there: str, features: list[int], follows: str) -> None:
    model, text = SetByHand(), f"check the {there} log and find out whether it ran"
    with watch(model, "block.attention.pattern", "block.feed_forward.features") as seen:
        logits = model(ids(text))
    pattern = seen["block.attention.pattern"][0, 0]
    assert pattern[-1].tolist() == [0.0, *(float(word == there) for word in text.split())]
    assert (pattern[:-1, 0] == 1).all()  # all others look at <sos>
    assert seen["block.feed_forward.features"][0, -1].tolist() == features
    assert seen["block.feed_forward.features"][0, :-1].count_nonzero() == 0
    assert logits[0, -1].tolist() == [float(word == follows) for word in WORDS]


def test_where_neither_is_there_no_feature_is_made() -> None:
    assert (SetByHand()(ids("check the log and find out whether it ran")) == 0).all()


def test_where_both_are_there_the_columns_of_the_lecture_cancel() -> None:
    """½ − ½ + 1 − 1 = 0 for both features: they are made for one of the two words. The masked vote is 1 : 1."""
    text = "check the battery and the program log and find out whether it ran"
    assert (SetByHand()(ids(text)) == 0).all()
    assert MASKED.votes(text.split()) == {"down": 1, "please": 1}
