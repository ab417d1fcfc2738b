"""Schedules: the warm-up, the way down, the end, and the formula of 2017."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.training.recipe import SchedulePart
from cutaway.training.schedule import KINDS, rate_at

SIZES = st.tuples(st.integers(0, 50), st.integers(51, 400))  # warm-up, steps


def rates(schedule: SchedulePart, steps: int) -> list[float]:
    return [rate_at(schedule, step, steps) for step in range(1, steps + 1)]


@pytest.mark.parametrize("kind", KINDS)
@given(sizes=SIZES, final=st.sampled_from([0.0, 0.1, 1.0]), decay=st.sampled_from([0.0, 0.2, 1.0]))
def test_up_to_one_then_down_and_never_zero(kind: str, sizes: tuple[int, int], final: float, decay: float) -> None:
    warmup, steps = sizes
    found = rates(SchedulePart(kind=kind, warmup=warmup, final=final, decay=decay), steps)
    assert found[: max(0, warmup - 1)] == pytest.approx([step / warmup for step in range(1, warmup)])
    top = max(1, warmup)
    assert found[top - 1] == pytest.approx(1.0, abs=0 if warmup else 2 / steps)
    assert all(after <= before for before, after in zip(found[top - 1 :], found[top:], strict=False))
    assert all(0 < rate <= 1 for rate in found)
    if kind in ("cosine", "linear"):
        assert found[-1] >= final
        assert found[-1] <= final + (1 - final) / (steps + 1 - warmup) + 1e-12


@given(sizes=SIZES, d_model=st.sampled_from([64, 512]))
def test_2017(sizes: tuple[int, int], d_model: int) -> None:
    """rate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), as a share of its highest value."""
    warmup, steps = max(1, sizes[0]), sizes[1]
    paper = [d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, steps + 1)]
    ours = rates(SchedulePart(kind="inverse_sqrt", warmup=warmup), steps)
    assert ours == pytest.approx([rate / max(paper) for rate in paper])


def test_half_way() -> None:
    """Ten steps of warm-up and 100 to go, the end being one step after the last."""
    at = {kind: rate_at(SchedulePart(kind=kind, warmup=10, final=0.2), 60, 109) for kind in KINDS}
    assert at == pytest.approx({"constant": 1, "inverse_sqrt": (1 / 6) ** 0.5, "cosine": 0.6, "linear": 0.6, "wsd": 1})


def test_wsd_is_stable_then_falls_in_a_line() -> None:
    found = rates(SchedulePart(kind="wsd", warmup=10, decay=0.2, final=0.1), 109)
    assert found[9:90] == pytest.approx([1.0] * 81)
    assert found[90:] == pytest.approx([1 - 0.9 * k / 20 for k in range(1, 20)])


def test_beyond_the_last_step_nothing_rises() -> None:
    """A run whose `steps` was changed on resume is refused; still, a rate never goes below its end."""
    assert rate_at(SchedulePart(kind="cosine", final=0.1), 500, 100) == pytest.approx(0.1)
    assert rate_at(SchedulePart(kind="linear", final=0.1), 500, 100) == pytest.approx(0.1)


def test_an_unknown_kind_is_refused_at_the_first_step() -> None:
    with pytest.raises(ConfigError, match=r"schedule.kind='cosin' is not one of constant, inverse_sqrt, cosine"):
        rate_at(SchedulePart(kind="cosin", warmup=1000), 1, 5000)
