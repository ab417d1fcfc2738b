"""The order depends on the key alone, and is a permutation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.data.order import number, shuffled

KEYS = st.lists(st.integers(0, 2**63), min_size=1, max_size=3)


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


def test_all_orders_of_four_come_up_about_as_often() -> None:
    orders = [tuple(shuffled(np.arange(4), 4, key).tolist()) for key in range(4800)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 24
    assert max(abs(count - 200) for count in counts) < 5 * 200**0.5


@given(st.integers(1, 10**9), KEYS)
def test_a_number_lies_in_its_range(n: int, key: list[int]) -> None:
    assert 0 <= number(n, *key) < n
