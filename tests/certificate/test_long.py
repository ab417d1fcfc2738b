"""What goes wrong only beyond the first positions fails, and the line that says so is the right one."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from torch import Tensor

from cutaway import verify
from cutaway.certificate import Certificate, inputs, laws
from cutaway.certificate.entry import Entry, Measure, judge
from cutaway.certificate.inputs import default_length, long_inputs
from cutaway.certificate.subject import Subject
from cutaway.certificate.verify import checked_length
from cutaway.errors import InputError
from cutaway.model import attention, masks
from cutaway.model.cache import Store
from cutaway.model.masks import Mask
from cutaway.model.model import Model

LAWS: dict[str, Callable[[Subject], Any]] = {
    "batch": laws.batch_is_single,
    "left": laws.left_is_right,
    "cached": laws.cached_is_uncached,
    "fused": laws.fused_is_explicit,
    "packed": laws.packed_is_unpacked,
}
FAR = 20  # the first position that no short question reaches is 18


def sound(name: str, **changes: Any) -> Model:
    return tiny(name, dtype=torch.float32, **changes)


def verdicts(model: Model) -> dict[str, Entry]:
    """Of each of these laws, on long rows alone."""
    long = long_inputs(model, default_length(model), 0)
    assert long is not None
    with Subject(model, long) as subject:
        return {name: judge(name, lambda law=law: law(subject)) for name, law in LAWS.items()}  # type: ignore[misc]


def failed(model: Model) -> set[str]:
    found = verdicts(model)
    assert all(entry.verdict != "error" for entry in found.values()), found
    return {name for name, entry in found.items() if entry.verdict == "failed"}


@pytest.mark.parametrize("name", ["gpt2", "llama-window", "bert", "transformer", "t5"])
def test_sound_models_pass(name: str) -> None:
    assert failed(sound(name)) == set()


@pytest.mark.parametrize("name", ["bert", "transformer", "t5"])
def test_padding_that_is_seen_from_afar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaks(real: Tensor) -> Mask:
        return Mask((real | (torch.arange(real.shape[1]) >= FAR))[:, None, None, :])

    monkeypatch.setattr(masks, "padding", leaks)
    assert "batch" in failed(sound(name))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_future_that_is_seen_from_afar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Mask.table

    def leaks(self: Mask, n_query: int, n_key: int, device: torch.device) -> Tensor | None:
        found = table(self, n_query, n_key, device)
        return found if found is None or not self.causal else found | (torch.arange(n_key) >= FAR)

    monkeypatch.setattr(Mask, "table", leaks)
    assert "batch" in failed(sound(name))  # what stands alone is left to the kernel's own causal mask


def test_a_window_that_ends_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = masks.sliding_window

    def wide(size: int, positions: Tensor, key_positions: Tensor | None = None) -> Mask:
        if key_positions is not None:  # with a cache
            return narrow(size, positions, key_positions)
        found = narrow(size, positions).may_look
        assert found is not None
        return Mask(found | (positions[:, None, :, None] >= FAR))

    monkeypatch.setattr(masks, "sliding_window", wide)
    assert "cached" in failed(sound("llama-window"))


@pytest.mark.parametrize("name", ["gpt2", "llama", "transformer", "t5"])
def test_a_cache_that_forgets_what_is_far(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Store.append

    def forgets(self: Store, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = append(self, keys, values)
        return keys, values * (torch.arange(values.shape[2]) < FAR)[None, None, :, None]

    monkeypatch.setattr(Store, "append", forgets)
    assert failed(sound(name)) == {"cached"}


def test_the_cache_takes_them_alone() -> None:
    """Half at once, some alone, the rest but some at once, and these alone again."""
    assert list(map(len, laws.in_pieces(list(range(101))))) == [50, *[1] * 10, 31, *[1] * 10]
    assert list(map(len, laws.in_pieces(list(range(7))))) == [3, 1, 1, 1, 1]
    assert [id for piece in laws.in_pieces(list(range(64))) for id in piece] == list(range(64))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_kernel_that_changes_its_way_with_the_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = attention.attend

    def other(query: Tensor, key: Tensor, value: Tensor, *given: Any, **more: Any) -> Tensor:
        return fused(query, key, value, *given, **more) * (1.001 if key.shape[2] > FAR else 1.0)

    monkeypatch.setattr(attention, "attend", other)
    assert "fused" in failed(sound(name))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_documents_that_see_each_other_afar(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = masks.same_document

    def meet(documents: Tensor) -> Mask:
        found = apart(documents).may_look
        assert found is not None
        return Mask(found | (torch.arange(documents.shape[1]) >= FAR)[None, None, :, None])

    monkeypatch.setattr(masks, "same_document", meet)
    assert failed(sound(name)) == {"packed"}


def test_one_of_the_two_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    model, whole = sound("bert"), import_module("cutaway.certificate.verify")
    for wrong in (True, False):

        def law(subject: Subject, wrong: bool = wrong) -> Measure:
            return Measure(value=0.5 if subject.inputs.long is wrong else 0.0, inputs=str(wrong))

        monkeypatch.setattr(whole, "LAWS", {"law": law})
        assert certified(model).entry("law").value == 0.5


# --- the length -------------------------------------------------------------------------------------------------------


def certified(model: Model, **options: Any) -> Certificate:
    return verify(model, quick=True, **options)


def test_the_certificate_says_how_long_the_longest_row_was() -> None:
    model = sound("bert")
    whole = certified(model)
    assert (whole.length, whole.max_len) == (32, 32)
    assert whole.entry("batch = single").inputs == "8 rows of 1 … 18 random ids, and 2 rows of 8 and 32"
    part = certified(model, length=20)
    assert (part.length, part.max_len) == (20, 32)
    assert part.entry("batch = single").inputs.endswith("2 rows of 5 and 20")
    assert (certified(sound("vit")).length, certified(sound("vit")).max_len) == (None, None)


def test_an_export_that_puts_the_axes_in_another_order_is_native() -> None:
    """Marian's sinusoids come in halves: its hidden states are ours in another order, and its scores are ours."""
    entry = certified(sound("transformer", pad_id=0, start_id=1, end_ids=(2,))).entry("export to HF = native")
    assert (entry.verdict, entry.inputs[-6:]) == ("passed", "and 32"), entry


@pytest.mark.parametrize("length", [0, 33])
def test_a_length_that_the_model_does_not_read_is_refused(length: int) -> None:
    with pytest.raises(InputError, match="between 1 and max_len=32"):
        certified(sound("bert"), length=length)


def test_a_picture_has_no_length() -> None:
    with pytest.raises(InputError, match="leave it out"):
        certified(sound("vit"), length=16)


def test_what_takes_long_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sound("gpt2", max_len=1024)
    assert default_length(model) == 1024
    monkeypatch.setattr(inputs, "MAX_OPERATIONS", 50e6)
    n = default_length(model)
    assert n is not None
    each = 2 * model.n_parameters() + 2 * 4 * 24 * n  # of two blocks: queries by keys, and the pattern by values
    assert n * each == pytest.approx(50e6, rel=0.01)
    monkeypatch.setattr(inputs, "MAX_OPERATIONS", 1.0)
    assert default_length(model) == 18


def test_a_weight_that_no_question_touches() -> None:
    model = sound("transformer", vocab_size=3000)
    model.get_parameter("target_embedding.tokens.weight").data[2999, 5] = float("inf")
    entry = certified(model).entry("weights are finite")
    assert entry.verdict == "failed"
    assert entry.why == "target_embedding.tokens.weight holds inf at [2999, 5] (not finite: 1 of 72,000 numbers)"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 0.5])
@pytest.mark.parametrize("long", [True, False])
def test_no_number_on_one_of_the_two_is_not_hidden_by_the_other(
    long: bool, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def law(subject: Subject) -> Measure:
        return Measure(value=wrong if subject.inputs.long is long else 0.25, inputs="")

    monkeypatch.setattr(import_module("cutaway.certificate.verify"), "LAWS", {"law": law})
    entry = certified(sound("bert")).entry("law")
    assert (entry.verdict, entry.value) == ("failed", 0.5 if wrong == 0.5 else None)


def test_every_length_up_to_the_models_own_may_be_asked_for() -> None:
    model = sound("gpt2", max_len=32)
    assert [checked_length(model, length) for length in (1, 31, 32)] == [1, 31, 32]
