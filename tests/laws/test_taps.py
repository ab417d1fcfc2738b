"""Looking changes nothing; what is seen is what was used; what is replaced takes effect."""

import pytest
import torch
from helpers.tiny_models import ALL, close, inputs, some_ids, tiny

from cutaway.errors import InputError
from cutaway.model.tap import Part, edit, tap_names, watch, watching


@pytest.mark.parametrize("name", ALL)
def test_watching_everything_changes_no_bit_and_sees_every_tap(name: str) -> None:
    model, given = tiny(name, dtype=torch.float32), inputs(name, dtype=torch.float32)
    plain = model(*given)
    with watch(model, "*") as seen:
        watched = model(*given)
    assert torch.equal(watched, plain)
    assert set(seen) == set(tap_names(model))
    assert all(isinstance(meaning, str) and meaning for meaning in tap_names(model).values())


@pytest.mark.parametrize("name", ALL)
def test_no_part_taps_what_it_has_not_declared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    undeclared: list[str] = []

    def tap(self: Part, tap: str, value: torch.Tensor) -> torch.Tensor:
        if tap not in self.taps:
            undeclared.append(f"{type(self).__name__}.{tap}")
        return value

    monkeypatch.setattr(Part, "tap", tap)
    tiny(name)(*inputs(name))
    assert not undeclared


@pytest.mark.parametrize("name", ALL)
def test_what_is_seen_is_what_was_used(name: str) -> None:
    model, given = tiny(name), inputs(name)
    side = "decoder" if hasattr(model, "decoder") else "encoder"
    with watch(model, f"{side}.1.*") as seen:
        model(*given)
    attention = getattr(model, side)[1].attention
    pattern, value = seen[f"{side}.1.attention.pattern"], seen[f"{side}.1.attention.value"]
    value = value.repeat_interleave(pattern.shape[1] // value.shape[1], dim=1)
    assert close(pattern @ value, seen[f"{side}.1.attention.heads"])
    assert torch.equal(
        attention.output(seen[f"{side}.1.attention.heads"].transpose(1, 2).flatten(2)),
        seen[f"{side}.1.attention.output"],
    )


def test_the_explorers_names_are_there() -> None:
    names = set(tap_names(tiny("transformer")))
    assert {
        "encoder.1.attention.pattern",
        "decoder.1.cross.pattern",
        "decoder.1.residual_after",
        "head.logits",
        "target_embedding.positions",
        "decoder.0.feed_forward.features",
    } <= names


def test_editing_a_head_away_equals_removing_its_weights() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)

    def without_head_2(heads: torch.Tensor) -> torch.Tensor:
        return torch.cat([heads[:, :2], torch.zeros_like(heads[:, 2:3]), heads[:, 3:]], dim=1)

    with edit(model, {"decoder.1.attention.heads": without_head_2}):
        edited = model(ids)
    output = model.decoder[1].attention.output
    output.weight.data.unflatten(1, (4, -1))[:, 2] = 0
    assert close(edited, model(ids))


def test_an_edited_pattern_takes_effect() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    with edit(
        model, {"decoder.*.attention.pattern": lambda pattern: torch.eye(6, dtype=pattern.dtype).expand_as(pattern)}
    ):
        only_itself = model(ids)
    alone = model(ids, documents=torch.arange(6).expand(2, 6))  # every token a document of its own …
    with edit(model, {"embedding.positions": lambda p: model.embedding.positions(torch.arange(6)[None]).expand_as(p)}):
        alone = model(ids, documents=torch.arange(6).expand(2, 6))  # … but at its own position
    assert close(only_itself, alone)


def test_a_watch_inside_an_edit_sees_the_edited_value() -> None:
    model, ids = tiny("gpt2"), some_ids(2, 6)
    with edit(model, {"embedding.output": torch.zeros_like}), watch(model, "embedding.output", "head.logits") as seen:
        out = model(ids)
    assert (seen["embedding.output"] == 0).all()
    assert torch.equal(seen["head.logits"], out)
    assert not watching()


def test_a_second_model_in_the_same_watch_stays_unseen() -> None:
    watched, other, ids = tiny("gpt2"), tiny("gpt2", seed=1), some_ids(2, 6)
    with watch(watched, "head.logits") as seen:
        expected = watched(ids)
        other(ids)
    assert torch.equal(seen["head.logits"], expected)


def test_every_pass_can_be_kept() -> None:
    model, ids = tiny("gpt2"), some_ids(1, 4)
    with watch(model, "head.logits", keep="all") as seen:
        passes = [model(ids[:, :n]) for n in (1, 2, 3)]
    assert all(torch.equal(kept, out) for kept, out in zip(seen["head.logits"], passes, strict=True))


def test_a_failed_pass_leaves_no_watcher_behind() -> None:
    model = tiny("gpt2")
    with pytest.raises(InputError), watch(model, "*"):
        model(torch.tensor([[-1]]))
    assert not watching()


@pytest.mark.parametrize("pattern", ["decoder.*.attention.patern", "encoder.0.attention.pattern", ""])
def test_a_pattern_that_matches_nothing_is_refused_with_what_is_near(pattern: str) -> None:
    with pytest.raises(InputError, match=r"no tap matches .* did you mean"), watch(tiny("gpt2"), pattern):
        pass


def test_asking_for_what_was_not_seen_names_what_was() -> None:
    model = tiny("gpt2")
    with watch(model, "head.logits") as seen:
        model(some_ids(1, 3))
    with pytest.raises(InputError, match=r"head\.logits"):
        seen["head.logit"]


def test_gradients_flow_through_what_is_seen() -> None:
    model, ids = tiny("gpt2"), some_ids(1, 4)
    with watch(model, "decoder.0.residual_after") as seen:
        out = model(ids)
    (gradient,) = torch.autograd.grad(out.sum(), seen["decoder.0.residual_after"])
    assert gradient.abs().sum() > 0


def test_watches_may_end_in_any_order() -> None:
    model, ids = tiny("gpt2"), some_ids(1, 4)
    first, second = watch(model, "head.logits"), watch(model, "embedding.output")
    seen_first, seen_second = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    model(ids)
    assert set(seen_second) == {"embedding.output"}
    assert not seen_first
    second.__exit__(None, None, None)
    assert not watching()


def test_watching_can_be_asked_of_one_model() -> None:
    model, other = tiny("gpt2"), tiny("gpt2", seed=1)
    with watch(model, "head.logits"):
        assert watching()
        assert watching(model)
        assert not watching(other)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_norm_frozen_at_its_own_scale_gives_the_same_and_at_another_does_not(name: str) -> None:
    model, ids = tiny(name), some_ids(2, 6)
    with watch(model, "*.scale") as seen:
        plain = model(ids)
    with edit(model, {tap: (lambda _, kept=kept: kept) for tap, kept in seen.items()}):
        assert close(model(ids), plain)
        assert close(model(ids)[:, :1], plain[:, :1])
    with edit(model, {"decoder.1.attention_norm.scale": lambda scale: 2 * scale}):
        assert not close(model(ids), plain)


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (
            {"*.heads": torch.zeros_like, "decoder.0.*.heads": torch.ones_like},
            "two patterns edit 'decoder.0.attention.heads'",
        ),
        ({"head.logits": torch.zeros(2)}, "is a Tensor: give a function"),
        ({"head.logits": None}, "is a NoneType: give a function"),
        ({"embedding.output": lambda x: x[:, :1]}, "it has to keep both"),
        ({"embedding.output": lambda x: x.float()}, "it has to keep both"),
    ],
)
def test_edits_that_cannot_be_meant_are_refused(edits: dict, said: str) -> None:
    model = tiny("gpt2")
    with pytest.raises(InputError, match=said), edit(model, edits):
        model(some_ids(1, 4))
    assert not watching()


def test_names_stay_the_same_where_a_part_is_wrapped() -> None:
    model = tiny("gpt2")
    names = set(tap_names(model))
    model.decoder._modules["0"] = torch.compile(model.decoder[0], backend="eager")
    assert set(tap_names(model)) == names
    assert set(tap_names(torch.nn.ModuleDict({"module": model})["module"])) == names


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_positions_are_seen_where_they_work(name: str) -> None:
    model, given = tiny(name), inputs(name)
    tap = "rotary.angle" if name == "llama" else "target_bias.bias"
    with watch(model, tap) as seen:
        plain = model(*given)
    with edit(model, {tap: torch.zeros_like}):
        assert not close(model(*given), plain)
    assert seen[tap].shape[-2] == given[-1].shape[1]
