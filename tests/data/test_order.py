"""The order depends on the key alone, and is a permutation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data import order
from cutaway.data.order import generator, random_number, round_keys, shuffled
from cutaway.errors import ConfigError

KEYS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3)


@given(st.integers(1, 3000), KEYS)
def test_every_place_holds_another_example(n: int, key: list[int]) -> None:
    assert sorted(shuffled(np.arange(n), n, *key)) == list(range(n))


@given(st.integers(1, 10**12), KEYS, st.data())
def test_one_place_can_be_asked_without_the_others(n: int, key: list[int], data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5)))
    together = shuffled(places, n, *key)
    alone = [int(shuffled(places[i : i + 1], n, *key)[0]) for i in range(len(places))]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < n)).all()


@settings(max_examples=20)
@given(st.integers(20, 500), st.integers(0, 1000))
def test_another_key_gives_another_order(n: int, key: int) -> None:
    first, second = shuffled(np.arange(n), n, 0, key), shuffled(np.arange(n), n, 0, key + 1)
    assert (first != second).any()
    assert (first != np.arange(n)).any()


@given(KEYS, KEYS)
def test_no_two_keys_share_a_round(one: list[int], other: list[int]) -> None:
    together = {*round_keys(*one), *round_keys(*other), random_number(2**64, *one), random_number(2**64, *other)}
    assert len(together) == (7 if one == other else 14)


def test_the_first_seeds_share_no_round() -> None:
    assert len({secret for seed in range(100) for secret in round_keys(seed)}) == 600


def test_the_orders_of_two_seeds_look_independent() -> None:
    """780 pairs of orders of 1,000: their correlations are as far from 0 as chance has it, and about one place of each
    pair holds the same example."""
    n = 1000
    orders = np.stack([shuffled(np.arange(n), n, seed, 0) for seed in range(40)])
    pairs = np.triu_indices(40, 1)
    far = np.corrcoef(orders)[pairs] * (n - 1) ** 0.5
    assert abs(far).max() < 5
    assert abs((far**2).mean() - 1) < 5 * (2 / 780) ** 0.5
    assert abs((orders[pairs[0]] == orders[pairs[1]]).sum(axis=1).mean() - 1) < 5 / 780**0.5


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_none_is_refused(seed: int) -> None:
    for use in (lambda: shuffled(np.arange(3), 3, seed), lambda: random_number(3, seed), lambda: generator(seed, 1)):
        with pytest.raises(ConfigError, match=rf"^{seed} in the key .* whole number of 0 … 2⁶⁴ − 1"):
            use()


def test_all_orders_of_four_come_up_about_as_often() -> None:
    orders = [tuple(shuffled(np.arange(4), 4, key).tolist()) for key in range(4800)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 24
    assert max(abs(count - 200) for count in counts) < 5 * 200**0.5


@given(st.integers(1, 10**9), KEYS)
def test_a_number_lies_in_its_range(n: int, key: list[int]) -> None:
    assert 0 <= random_number(n, *key) < n


def test_an_order_is_the_same_for_ever() -> None:
    """A run that goes on after an update must see what it would have seen."""
    assert shuffled(np.arange(10), 10, 7, 1).tolist() == [2, 3, 1, 8, 7, 6, 9, 4, 5, 0]
    assert shuffled(np.arange(3), 10**6, 0, 2, 5).tolist() == [996525, 214276, 885883]
    assert [random_number(1000, 1, 2), random_number(1000, 2, 1), random_number(1 << 62, 0)] == [
        610,
        430,
        1227844342346046657,
    ]
    drawn = np.random.default_rng(random_number(1 << 64, 3, 100, 5)).random()
    assert generator(3, 100, 5).random() == drawn


def test_what_a_key_is_used_for_is_the_same_for_ever() -> None:
    """And no two uses share their numbers."""
    uses = {name: vars(order)[name] for name in vars(order) if name.isupper() and not name.startswith("_")}
    assert uses == {
        "WINDOW_ORDER": 0, "WINDOW_START": 1, "BATCH_ORDER": 2, "ROW_ORDER": 3, "SEGMENTS": 4, "HELD_OUT": 5,
        "ROUNDS": 6,
    }  # fmt: skip
