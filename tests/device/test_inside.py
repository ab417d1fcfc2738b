"""Looking inside on a GPU: the same numbers as on the CPU, and the laws hold there."""

from typing import Any

import torch
from tiny import ALL, close, inputs, tiny
from torch import Tensor

import cutaway
from cutaway import LogitDifference, Patch, Place
from cutaway.inside.attribution import integrated_gradients
from cutaway.model.tap import watch

METRIC = LogitDifference([1, 2], 3)


def on_both(name: str) -> tuple[Any, Any, tuple[Tensor, ...], tuple[Tensor, ...]]:
    here = inputs(name)
    return tiny(name), tiny(name).cuda(), here, tuple(x.cuda() for x in here)


def other(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.flip(0) if x.is_floating_point() else (x + 7) % 50 for x in given)


def test_every_tap_has_the_same_value() -> None:
    for name in ALL:
        here, there, given, sent = on_both(name)
        with torch.no_grad(), watch(here, "*") as seen:
            here(*given)
        with torch.no_grad(), watch(there, "*") as shown:
            there(*sent)
        assert len(seen) > 20
        assert list(seen) == list(shown)
        for tap in seen:
            assert shown[tap].is_cuda, tap
            assert close(shown[tap].cpu(), seen[tap]), (name, tap)


def test_watching_changes_no_bit() -> None:
    for name in ALL:
        _, there, _, sent = on_both(name)
        with torch.no_grad():
            plain = there(*sent)
            with watch(there, "*"):
                assert torch.equal(there(*sent), plain), name


def test_the_parts_of_the_stream_are_the_stream_and_the_logits() -> None:
    for name in ALL:
        _, there, _, sent = on_both(name)
        found = cutaway.writes(there, *sent)
        assert close(found.total(), found.stream), name
        tokens = [3, 1, 4] if name != "vit" else None
        logits = there(*sent)
        assert close(found.to_logits(tokens).total(), logits if tokens is None else logits[..., tokens]), name


def test_lenses_read_the_same() -> None:
    for name in ("gpt2", "llama", "bert", "transformer"):
        here, there, given, sent = on_both(name)
        seen, shown = cutaway.logit_lens(here, *given), cutaway.logit_lens(there, *sent)
        assert torch.equal(seen.top_tokens.cpu(), shown.top_tokens.cpu()), name


def test_sweeps_and_their_estimates_are_the_same() -> None:
    for name in ALL:
        here, there, given, sent = on_both(name)
        for over in ("residual", "heads"):
            for way in (cutaway.sweep, cutaway.estimate_sweep):
                seen = way(here, given, other(given), METRIC, over=over)
                shown = way(there, sent, other(sent), METRIC, over=over)
                assert close(shown.values.cpu(), seen.values), (name, over, way.__name__)
                assert (seen.values - seen.corrupted).abs().max() > 1e-3


def test_everything_from_another_run_is_the_other_run() -> None:
    for name in ("gpt2", "llama", "bert"):
        _, there, _, sent = on_both(name)
        side = "encoder" if name == "bert" else "decoder"
        saved = cutaway.record(there, *sent, places=[f"{side}.1.residual_after"])
        with torch.no_grad(), cutaway.intervene(there, [Patch(Place.of(f"{side}.1.residual_after"), saved)]):
            assert torch.equal(there(*other(sent)), there(*sent)), name


def test_integrated_gradients_are_the_same() -> None:
    for name in ("gpt2", "bert", "vit"):
        here, there, given, sent = on_both(name)
        seen = integrated_gradients(here, *given, metric=METRIC)
        shown = integrated_gradients(there, *sent, metric=METRIC)
        for ours, theirs in zip(shown, seen, strict=True):
            assert close(ours.scores.cpu(), theirs.scores), name
