"""The lectures' sequence models, number by number, counted from the lectures' own sentences. (mission: parts 2 to 5)"""

import numpy as np
import pytest

from cutaway.before import MarkovChain, MaskedSkips, Skips, informative, sentences
from cutaway.before.markov.as_attention import as_attention


class TestPart2FirstOrder:
    lines = sentences("show me my directories please\nshow me my files please\nshow me my photos please")
    chain = MarkovChain(lines, weights=[0.2, 0.3, 0.5])

    def test_the_row_of_my(self) -> None:
        assert self.chain.row(("my",)) == {"directories": 0.2, "files": 0.3, "photos": 0.5}

    def test_the_whole_matrix(self) -> None:
        matrix = self.chain.matrix()
        assert matrix.rows == matrix.columns == ("show", "me", "my", "directories", "please", "files", "photos")
        assert matrix.values.tolist() == [
            [0, 1, 0, 0, 0, 0, 0],  # show → me
            [0, 0, 1, 0, 0, 0, 0],  # me → my
            [0, 0, 0, 0.2, 0, 0.3, 0.5],  # my → directories, files, photos
            [0, 0, 0, 0, 1, 0, 0],  # directories → please
            [0, 0, 0, 0, 0, 0, 0],  # please: nothing follows it
            [0, 0, 0, 0, 1, 0, 0],  # files → please
            [0, 0, 0, 0, 1, 0, 0],  # photos → please
        ]

    def test_a_one_hot_row_times_the_matrix_is_the_row_of_the_word(self) -> None:
        one_hot = np.array([word == "my" for word in self.chain.words], dtype=float)
        votes = dict(zip(self.chain.words, one_hot @ self.chain.matrix().values, strict=True))
        assert {word: vote for word, vote in votes.items() if vote} == self.chain.votes(["show", "me", "my"])

    def test_the_sentences_are_as_probable_as_they_were(self) -> None:
        found = [np.exp(sum(self.chain.log_probabilities(line))) for line in self.lines]
        assert found == pytest.approx([0.2, 0.3, 0.5])


class TestPart3SecondOrder:
    lines = sentences("check whether the battery ran down please\ncheck whether the program ran please")
    first = MarkovChain(lines, weights=[0.4, 0.6])
    second = MarkovChain(lines, 2, weights=[0.4, 0.6])

    def test_the_first_order_cannot_tell_what_ran(self) -> None:
        assert self.first.row(("ran",)) == {"down": 0.4, "please": 0.6}

    def test_the_second_order_can(self) -> None:
        assert self.second.row(("battery", "ran")) == {"down": 1}
        assert self.second.row(("program", "ran")) == {"please": 1}
        assert self.second.row(("whether", "the")) == {"battery": 0.4, "program": 0.6}

    def test_nothing_follows_please(self) -> None:
        assert self.first.row(("please",)) == self.second.row(("ran", "please")) == {}
        assert self.second.row(("down", "please")) == {}

    def test_all_other_rows_have_a_single_1(self) -> None:
        rest = self.second.counts.keys() - {("whether", "the"), ("ran", "please"), ("down", "please")}
        assert len(rest) == 6
        assert all(list(self.second.row(feature).values()) == [1] for feature in rest)


PROGRAM = "check the program log and find out whether it ran".split()
BATTERY = "check the battery log and find out whether it ran".split()


def with_skips() -> Skips:
    text = (
        "Check the program log and find out whether it ran please\n"
        "Check the battery log and find out whether it ran down please"
    )
    return Skips(sentences(text))  # the lecture gives these two no probabilities: each occurs once


class TestPart4Skips:
    chain = with_skips()

    def test_the_two_features_that_tell(self) -> None:
        assert self.chain.row(("battery", "ran")) == {"down": 1}
        assert self.chain.row(("program", "ran")) == {"please": 1}

    @pytest.mark.parametrize("word", "check the log and find out whether it".split())
    def test_words_of_both_sentences_vote_half_and_half(self, word: str) -> None:
        assert self.chain.row((word, "ran")) == {"down": 0.5, "please": 0.5}

    @pytest.mark.parametrize("word", ["down", "please", "ran"])
    def test_what_never_stood_before_ran_is_empty(self, word: str) -> None:
        assert self.chain.row((word, "ran")) == {}

    def test_unmasked_votes(self) -> None:
        assert self.chain.votes(BATTERY) == {"down": 5, "please": 4}
        assert self.chain.votes(PROGRAM) == {"down": 4, "please": 5}  # the lecture shows the other sentence only


class TestPart5Masks:
    chain = with_skips()
    masked = MaskedSkips(chain, {"ran": {"battery", "program"}})

    def test_the_vote_becomes_1_to_0(self) -> None:
        assert self.masked.votes(BATTERY) == {"down": 1}
        assert self.masked.votes(PROGRAM) == {"please": 1}

    def test_counting_finds_the_masks_of_the_lecture(self) -> None:
        first = MarkovChain(sentences(" ".join([*PROGRAM, "please\n", *BATTERY, "down please"])))
        assert informative(self.chain, first) == self.masked.masks

    def test_a_one_hot_query_picks_the_mask_of_ran(self) -> None:
        look = as_attention(self.masked, BATTERY)
        assert look.query.tolist() == [float(word == "ran") for word in self.masked.words]
        assert dict(zip(look.words, look.mask().tolist(), strict=True)) == {
            word: float(word == "battery") for word in BATTERY[:-1]
        }

    @pytest.mark.parametrize(("text", "follows"), [(BATTERY, "down"), (PROGRAM, "please")])
    def test_attention_gives_the_same_vote(self, text: list[str], follows: str) -> None:
        look, wanted = as_attention(self.masked, text), [float(word == follows) for word in self.masked.words]
        assert look.votes().tolist() == look.attention().tolist() == wanted
