"""Brown clusters: the tables that are kept against sums written out, at every merge; and what is put together."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cutaway.before.ngrams import brown_clusters
from cutaway.before.ngrams.brown_clusters import brown_classes
from cutaway.before.ngrams.merge_costs import MergeCosts
from cutaway.errors import ConfigError, InputError

V = 14  # the last two ids are never seen


def skewed(seed: int, length: int) -> list[int]:
    return (np.random.default_rng(seed).zipf(1.4, length) % (V - 2)).tolist()


TEXTS = st.builds(skewed, st.integers(0, 1000), st.integers(30, 150))
ENDS = st.sampled_from([None, 1])
MOST = st.sampled_from([6, 9, V])


def pairs_of(ids: list[int], end: int | None) -> list[tuple[int, int]]:
    """Neighbours; what begins a text stands behind its border, V."""
    found, before = [], V
    for token in ids:
        found.append((before, token))
        before = V if token == end else token
    return found


def information(clusters: list[set[int]], pairs: list[tuple[int, int]]) -> float:
    """Over clusters in view, in nats times pairs; the margins are those of the whole text."""
    total = 0.0
    for one in clusters:
        for other in clusters:
            both = sum(a in one and b in other for a, b in pairs)
            left, right = sum(a in one for a, _ in pairs), sum(b in other for _, b in pairs)
            total += both * math.log(len(pairs) * both / (left * right)) if both else 0.0
    return total


class ByHand:
    """Clusters as sets of words, beside the window; every merge is checked against all others."""

    def __init__(self, ids: list[int], classes: int, end: int | None, most: int) -> None:
        self.pairs = pairs_of(ids, end)
        seen = sorted(set(ids) - {end}, key=lambda word: (-ids.count(word), word))
        self.waiting = seen[:most]
        self.clusters = {brown_clusters.BORDER: {V, end}, brown_clusters.RARE: set(seen[most:])}
        self.size, self.merges = classes, 0
        for slot in range(classes):
            self.clusters[brown_clusters.FIRST + slot] = {self.waiting.pop(0)}

    def now(self) -> float:
        return information(list(self.clusters.values()), self.pairs)

    def check(self, window: MergeCosts, a: int, b: int, loss: float) -> None:
        movable = [slot for slot in self.clusters if slot >= brown_clusters.FIRST]
        if self.waiting and len(movable) == self.size:
            (empty,) = set(range(brown_clusters.FIRST, brown_clusters.FIRST + self.size + 1)) - set(movable)
            self.clusters[empty] = {self.waiting.pop(0)}
            movable.append(empty)
        before = self.now()
        assert window.information == pytest.approx(before, abs=1e-9)
        losses = {}
        for one in movable:
            for other in movable:
                if one < other:
                    rest = [cluster for slot, cluster in self.clusters.items() if slot not in (one, other)]
                    merged = [*rest, self.clusters[one] | self.clusters[other]]
                    losses[one, other] = before - information(merged, self.pairs)
        assert loss == pytest.approx(losses[a, b], abs=1e-9)
        assert losses[a, b] <= min(losses.values()) + 1e-9
        assert (a, b) == min(pair for pair, lost in losses.items() if lost <= min(losses.values()) + 1e-9)
        self.clusters[a] |= self.clusters.pop(b)
        self.merges += 1


@example([0, 1, 2, 1, 3, 1, 4, 1, 5, 1], 3, 1, V)  # texts of one word each: all merges are equal
@given(TEXTS, st.integers(1, 5), ENDS, MOST)
def test_every_merge_is_the_best_of_all_and_the_information_is_that_of_its_formula(ids, classes, end, most):
    words = min(len(set(ids) - {end}), most)
    classes = min(classes, words)
    beside = ByHand(ids, classes, end, most)
    merge = MergeCosts.merge

    def checked(window: MergeCosts, a: int, b: int, loss: float) -> None:
        beside.check(window, a, b, loss)
        merge(window, a, b, loss)
        assert window.information == pytest.approx(beside.now(), abs=1e-9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MergeCosts, "merge", checked)
        brown_classes(np.array(ids), V, classes, end=end, most=most)
    assert beside.merges == words - 1  # down to the root


@given(TEXTS, st.integers(1, 5), ENDS, MOST)
def test_the_classes_part_the_words_and_say_how_much_they_tell(ids, classes, end, most):
    classes = min(classes, len(set(ids) - {end}), most)
    found = brown_classes(np.array(ids), V, classes, end=end, most=most)
    assert set(found.of.tolist()) == set(range(len(found.bits)))
    assert sorted(word for number in range(len(found.bits)) for word in found.members(number)) == list(range(V))
    assert found.times.tolist() == [ids.count(word) for word in range(V)]
    if end is not None:
        assert found.members(found.of[end]) == [end]
    unseen = [word for word in range(V) if word not in ids and word != end]
    assert len({found.of[word] for word in unseen}) == 1
    clusters = [set(found.members(number)) for number in range(len(found.bits))]
    clusters = [c | {V} if end in c else c for c in clusters] if end is not None else [*clusters, {V}]
    wanted = information(clusters, pairs_of(ids, end)) / len(ids) / math.log(2)
    assert found.information == pytest.approx(wanted, abs=1e-9)


@given(TEXTS, st.integers(2, 5))
def test_bits_are_the_leaves_of_a_tree(ids, classes):
    classes = min(classes, len(set(ids)))
    bits = [bits for bits in brown_classes(np.array(ids), V, classes).bits if bits]
    assert bits == sorted(bits)
    if classes > 1:
        assert sum(2.0 ** -len(each) for each in bits) == 1  # none begins another, and no turn is missing
        assert len(set(bits)) == classes


def test_words_that_are_used_alike_come_together():
    """Two sets of words, each word as good as any other of its set, one set always behind the other."""
    random = np.random.default_rng(0)
    animals, deeds = range(10), range(10, 20)
    ids = [int(random.choice(words)) for _ in range(2000) for words in (animals, deeds)]
    found = brown_classes(np.array(ids), 20, 2)
    assert {frozenset(found.members(number)) for number in (0, 1)} == {frozenset(animals), frozenset(deeds)}
    assert found.information == pytest.approx(1, abs=0.01)  # which set comes next is certain, and was one bit
    four = brown_classes(np.array(ids), 20, 4)
    assert all(
        set(four.members(number)) <= set(animals) or set(four.members(number)) <= set(deeds) for number in range(4)
    )
    first = four.of[0]
    assert set(four.members(four.nearest(first)[0])) <= set(animals)  # the tree has the sets as its first turn


def test_nothing_depends_on_chance():
    ids = np.array(skewed(3, 3000))
    one, other = (brown_classes(ids, V, 4) for _ in range(2))
    assert (one.of == other.of).all()
    assert one.bits == other.bits
    assert one.information == other.information


def test_progress_is_told_to_the_end():
    told: list[tuple[int, int]] = []
    brown_classes(np.array(skewed(0, 100)), V, 3, progress=lambda *each: told.append(each))
    assert told == [(i, told[-1][1]) for i in range(len(told))]
    assert told[-1][0] == told[-1][1]


def test_too_little_is_said():
    with pytest.raises(InputError, match="classes=5: the text has 3 different tokens"):
        brown_classes(np.array([0, 1, 2, 1]), V, 5)
    with pytest.raises(ConfigError, match="classes=0"):
        brown_classes(np.array([0, 1, 2, 1]), V, 0)
    with pytest.raises(ConfigError, match="most=2"):
        brown_classes(np.array([0, 1, 2, 1]), V, 3, most=2)
    with pytest.raises(InputError, match="the text is empty"):
        brown_classes(np.array([], np.int64), V, 2)
    assert brown_classes(np.array([0]), 1, 1).bits == ("",)
