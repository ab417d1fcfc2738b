"""The lectures' worked examples, number by number, in the parts that do the work. (mission: parts 1, 5, 9 to 12)"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, tensor

from cutaway.errors import ConfigError
from cutaway.model.attention import SelfAttention, attention, mix, pattern_of, scores_of
from cutaway.model.embeddings import TokenEmbedding
from cutaway.model.feed_forward import FeedForward
from cutaway.model.heads import LanguageModelHead
from cutaway.model.masks import CAUSAL, Mask, padding
from cutaway.model.positions import Sinusoidal, sinusoids
from cutaway.model.tap import watch


def embedding(rows: list[list[float]]) -> TokenEmbedding:
    part = TokenEmbedding(len(rows), len(rows[0]))
    part.matrix.data = tensor(rows)
    return part


class TestPart1OneHot:
    def test_a_one_hot_row_times_a_matrix_selects_a_row(self) -> None:
        one_hot = tensor([[1.0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
        matrix = tensor([[0.2, 0.9], [0.7, 0.0], [0.8, 0.3], [0.1, 0.4]])
        assert torch.equal(one_hot @ matrix, tensor([[0.2, 0.9], [0.1, 0.4], [0.8, 0.3]]))

    def test_the_embedding_is_that_product(self) -> None:
        part, ids = embedding([[0.2, 0.9], [0.7, 0.0], [0.8, 0.3], [0.1, 0.4]]), tensor([[0, 3, 2]])
        assert torch.equal(part(ids), F.one_hot(ids, 4).float() @ part.matrix)
        assert torch.equal(part(ids)[0], tensor([[0.2, 0.9], [0.1, 0.4], [0.8, 0.3]]))


class TestPart5MasksAsAttention:
    """«Check the battery log and find out whether it ran …»: which of its words say what follows `ran`?"""

    words = "check the program battery log and find out whether it ran down please".split()
    text = "check the battery log and find out whether it ran".split()

    def votes(self) -> Tensor:
        """What the feature (word, ran) says of the next word: columns down, please."""
        votes = torch.full((len(self.words), 2), 0.5)
        votes[self.words.index("battery")] = tensor([1.0, 0.0])
        votes[self.words.index("program")] = tensor([0.0, 1.0])
        for word in ("ran", "down", "please"):  # never stood before `ran`
            votes[self.words.index(word)] = 0
        return votes

    def masks(self) -> Tensor:
        """One row per current word; the row of `ran` keeps the two features that tell."""
        masks = torch.zeros(len(self.words), len(self.words))
        for kept in ("battery", "program"):
            masks[self.words.index("ran"), self.words.index(kept)] = 1
        return masks

    def active(self) -> Tensor:
        return tensor([float(word in self.text) for word in self.words])

    def test_unmasked_the_votes_are_5_to_4(self) -> None:
        assert (self.active() @ self.votes()).tolist() == [5.0, 4.0]

    def test_a_one_hot_query_against_all_masks_picks_the_mask_of_the_current_word(self) -> None:
        query = F.one_hot(tensor(self.words.index("ran")), len(self.words)).float()[None, None, None]
        key = self.masks().T[None, None]  # feature f is kept by word w where key[f, w] is 1
        mask = scores_of(query, key, scale=1.0)[0, 0, 0]
        assert torch.equal(mask, self.masks()[self.words.index("ran")])
        assert ((self.active() * mask) @ self.votes()).tolist() == [1.0, 0.0]

    def test_with_softmax_it_is_attention(self) -> None:
        query = F.one_hot(tensor(self.words.index("ran")), len(self.words)).float()[None, None, None]
        key, value = self.masks().T[None, None], self.votes()[None, None]
        found = attention(query, key, value, padding(self.active()[None].bool()), scale=1000.0)
        assert found[0, 0, 0].tolist() == [1.0, 0.0]


class TestPart9Embeddings:
    battery, program, down, out = [0.2, 1.0], [-0.3, 1.1], [-0.9, -0.8], [-0.5, -1.2]

    def head(self) -> LanguageModelHead:
        """The lecture gives the column of `program`; the other words keep their embeddings."""
        head = LanguageModelHead(2, 4)
        head.matrix.data = tensor([self.battery, [-0.1, 0.9], self.down, self.out])
        return head

    def test_de_embedding_is_a_matrix_of_its_own_and_scores_by_dot_products(self) -> None:
        tokens = embedding([self.battery, self.program, self.down, self.out])
        scores = self.head()(tokens(tensor([[1]])))[0, 0]
        # battery's 1.04 is ahead of 1.02: from these numbers alone `program` would not win
        assert scores.tolist() == pytest.approx([1.04, 1.02, -0.61, -1.17])

    def test_the_largest_dot_product_wins(self) -> None:
        tokens = embedding([self.battery, self.program, self.down, self.out])
        scores = self.head()(tokens(tensor([[0, 2]])))[0]
        assert scores[0].tolist() == pytest.approx([1.04, 0.88, -0.98, -1.3])
        assert scores[1].tolist() == pytest.approx([-0.98, -0.63, 1.45, 1.41])
        assert scores.argmax(dim=-1).tolist() == [0, 2]  # battery for battery, down for down

    def test_with_the_embedding_itself_battery_ties(self) -> None:
        tokens = embedding([self.battery, self.program, self.down, self.out])
        scores = LanguageModelHead(2, 4, tied_to=tokens)(tokens(tensor([[0]])))[0, 0]
        assert scores[:2].tolist() == pytest.approx([1.04, 1.04])

    def test_tied_weights_are_one_parameter_in_one_place(self) -> None:
        tokens = embedding([self.battery, self.program, self.down, self.out])
        head = LanguageModelHead(2, 4, tied_to=tokens)
        assert list(head.parameters()) == []
        assert head.matrix is tokens.weight


class TestPart10Positions:
    table = (
        (0, 0.841, 0.909, 0.141, -0.757),
        (1, 0.540, -0.416, -0.990, -0.654),
        (0, 0.025, 0.050, 0.075, 0.100),
        (1, 1, 0.999, 0.997, 0.995),
        (0, 0.001, 0.001, 0.002, 0.003),
    )

    def test_the_golden_table_for_d_model_5(self) -> None:
        # one row per dimension here, one row per position there
        assert torch.allclose(sinusoids(5, 5).T, tensor(self.table, dtype=torch.float64), atol=5.01e-4)
        assert torch.allclose(Sinusoidal(5, 5)(torch.arange(5)[None])[0].T, tensor(self.table), atol=5.01e-4)


class TestPart11Attention:
    def test_a_soft_dictionary_attention(self) -> None:
        """The query «order_104» against all keys at once; the values are mixed by how well the keys match."""
        keys = torch.eye(3)[None, None]  # order_103, order_104, order_105
        values = tensor([[[[10.0], [20.0], [30.0]]]])
        query = keys[:, :, 1:2]
        assert attention(query, keys, values, scale=1000.0).item() == 20.0
        soft = attention(query, keys, values, scale=1.0).item()
        e = torch.e
        assert soft == pytest.approx((10 + 20 * e + 30) / (2 + e))

    def test_the_formula(self) -> None:
        q, k, v = (torch.randn(1, 1, 4, 9, dtype=torch.float64) for _ in range(3))
        by_hand = torch.softmax(q[0, 0] @ k[0, 0].T / 3, dim=-1) @ v[0, 0]  # √9 = 3
        assert torch.allclose(attention(q, k, v)[0, 0], by_hand, atol=1e-14)

    def test_the_future_scores_minus_infinity_and_a_position_sees_itself(self) -> None:
        pattern = pattern_of(torch.zeros(1, 1, 3, 3), CAUSAL)[0, 0]
        assert torch.allclose(pattern, tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]))

    def test_who_may_look_nowhere_finds_nothing(self) -> None:
        nowhere = Mask(torch.zeros(1, 1, 1, 3, dtype=torch.bool))
        assert (mix(pattern_of(torch.randn(1, 1, 1, 3), nowhere), torch.randn(1, 1, 3, 2)) == 0).all()

    def test_heads_work_side_by_side_on_their_share_and_are_mixed_by_one_map(self) -> None:
        attention, x = SelfAttention(12, 3).double(), torch.randn(2, 5, 12, dtype=torch.float64)
        q, k, v = attention.query_key_value(x).chunk(3, dim=-1)
        found = [
            torch.softmax(q[..., own] @ k[..., own].transpose(1, 2) / 2, dim=-1) @ v[..., own]  # d_head = 12/3, √4 = 2
            for own in (slice(0, 4), slice(4, 8), slice(8, 12))
        ]
        assert torch.allclose(attention(x), attention.output(torch.cat(found, dim=-1)), atol=1e-14)
        with watch(attention, "heads") as seen:
            attention(x)
        assert seen["heads"].shape == (2, 3, 5, 4)

    def test_heads_must_share_evenly(self) -> None:
        with pytest.raises(ConfigError, match="d_model=500 is not divisible by n_heads=8"):
            SelfAttention(500, 8)


class TestPart12FeedForward:
    @pytest.mark.parametrize(("present", "features"), [([1, 0, 1, 1], [1, 0]), ([0, 1, 1, 1], [0, 1])])
    def test_relu_leaves_exactly_the_feature_that_is_present(self, present: list[int], features: list[int]) -> None:
        part = FeedForward(4, 2, "relu", bias=False)  # inputs: battery, program, ran, bias
        part.up.weight.data = tensor([[1.0, -1, 1, -1], [-1, 1, 1, -1]])  # (battery, ran), (program, ran)
        with watch(part, "features") as seen:
            part(tensor([[present]]).float())
        assert seen["features"][0, 0].tolist() == features

    @pytest.mark.parametrize("present", [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]])
    def test_half_a_feature_is_none(self, present: list[int]) -> None:
        part = FeedForward(4, 2, "relu", bias=False)
        part.up.weight.data = tensor([[1.0, -1, 1, -1], [-1, 1, 1, -1]])
        with watch(part, "features") as seen:
            part(tensor([[present]]).float())
        assert seen["features"][0, 0].tolist() == [0, 0]
