"""Looking inside on a GPU: the same numbers as on the CPU, and the laws hold there."""

from typing import Any

import torch
from helpers.bert_tokenizer import bert_tokenizer
from helpers.tiny_models import ALL, close, inputs, tiny
from tokenizers import AddedToken
from torch import Tensor

import cutaway
from cutaway.evaluation.winograd import Schema
from cutaway.inside import LogitDifference, Patch, Place
from cutaway.inside.attribution.by_gradient import integrated_gradients
from cutaway.inside.circuits.coreference import coreference_heads
from cutaway.inside.circuits.edges import find_edges
from cutaway.inside.circuits.induction import induction_heads, repeated_tokens
from cutaway.inside.circuits.ioi import ioi_prompts
from cutaway.inside.circuits.ioi_head_scores import ioi_head_scores
from cutaway.model.tap import watch
from cutaway.toys.names import word_tokenizer

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
        found = cutaway.inside.decompose_residual(there, *sent)
        assert close(found.total(), found.stream), name
        tokens = [3, 1, 4] if name != "vit" else None
        logits = there(*sent)
        assert close(found.to_logits(tokens).total(), logits if tokens is None else logits[..., tokens]), name


def test_lenses_read_the_same() -> None:
    for name in ("gpt2", "llama", "bert", "transformer"):
        here, there, given, sent = on_both(name)
        seen, shown = cutaway.inside.logit_lens(here, *given), cutaway.inside.logit_lens(there, *sent)
        assert torch.equal(seen.top_tokens.cpu(), shown.top_tokens.cpu()), name


def test_sweeps_and_their_estimates_are_the_same() -> None:
    for name in ALL:
        here, there, given, sent = on_both(name)
        for over in ("residual", "heads"):
            for way in (cutaway.inside.patch_sweep, cutaway.inside.estimate_sweep):
                seen = way(here, given, other(given), METRIC, over=over)
                shown = way(there, sent, other(sent), METRIC, over=over)
                assert close(shown.values.cpu(), seen.values), (name, over, way.__name__)
                assert (seen.values - seen.corrupted).abs().max() > 1e-3


def test_everything_from_another_run_is_the_other_run() -> None:
    for name in ("gpt2", "llama", "bert"):
        _, there, _, sent = on_both(name)
        side = "encoder" if name == "bert" else "decoder"
        saved = cutaway.inside.record_activations(there, *sent, places=[f"{side}.1.residual_after"])
        with torch.no_grad(), cutaway.inside.intervene(there, [Patch(Place.of(f"{side}.1.residual_after"), saved)]):
            assert torch.equal(there(*other(sent)), there(*sent)), name


def test_integrated_gradients_are_the_same() -> None:
    for name in ("gpt2", "bert", "vit"):
        here, there, given, sent = on_both(name)
        seen = integrated_gradients(here, *given, metric=METRIC)
        shown = integrated_gradients(there, *sent, metric=METRIC)
        for ours, theirs in zip(shown, seen, strict=True):
            assert close(ours.scores.cpu(), theirs.scores), name


def test_prompts_go_where_the_model_is() -> None:
    """Sentences, random tokens and schemas are made on the CPU, and asked of a model on the GPU as they are."""
    tokenizer = word_tokenizer()
    here = tiny("gpt2", vocab_size=tokenizer.vocab_size)
    there = tiny("gpt2", vocab_size=tokenizer.vocab_size).cuda()
    asked, ids = ioi_prompts(tokenizer, 8), repeated_tokens(tokenizer.vocab_size, rows=2, length=8)
    for model in (here, there):
        assert asked.answers(model).ahead.device == model.device
        assert asked.task(model).whole.device == model.device
    seen, shown = (asked.task(model).effects() for model in (here, there))
    assert all(abs(seen[node] - shown[node]) < 1e-9 for node in seen)
    first, second = (ioi_head_scores(model, asked) for model in (here, there))
    for role in first:
        assert all(abs(x - second[role].scores[node]) < 1e-9 for node, x in first[role].scores.items()), role
    ours, theirs = (induction_heads(model, ids) for model in (here, there))
    assert abs(ours.loss[1] - theirs.loss[1]) < 1e-9
    words = bert_tokenizer(
        "[UNK] The animal didn't cross the street because it was tired.".split(), AddedToken("[MASK]")
    )
    tired = Schema("The animal didn't cross the street because ", " was tired.", ("The animal", "the street"), 0, "it")
    looks = [
        coreference_heads(model, words, [tired, tired]).looks.scores for model in (tiny("bert"), tiny("bert").cuda())
    ]
    assert all(abs(looks[0][node] - looks[1][node]) < 1e-9 for node in looks[0])


def test_circuits_and_ablations_are_the_same() -> None:
    for name in ("gpt2", "llama", "transformer", "bert"):
        here, there, given, sent = on_both(name)
        metric = LogitDifference(1, 3)
        seen, shown = (
            cutaway.inside.ablate_sweep(model, *ids, metric=metric, over="heads")
            for model, ids in ((here, given), (there, sent))
        )
        assert close(shown.values.cpu(), seen.values), name
        found = []
        for model, ids in ((here, given), (there, sent)):
            asked = cutaway.inside.circuit_task(model, *ids, metric=metric, reference=other(ids))
            found.append(find_edges(asked, cutaway.Circuit.of(model, "some", asked.among[::3]), least=0.0).edges)
        for (*ours, x), (*theirs, y) in zip(*found, strict=True):
            assert ours == theirs
            assert abs(x - y) < 1e-9
