"""Pictures of results: their numbers are the result's, their words the text's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.inside_commands import ASKED, TEXT, pieces, write_models
from helpers.tiny_models import tiny

from cutaway.checkpoints import load, tokenizer_of
from cutaway.errors import InputError
from cutaway.inside.attribution.explain import explain_image, explain_next
from cutaway.inside.circuits.circuit import Circuit
from cutaway.inside.circuits.head_scores import HeadScores, attention_patterns
from cutaway.inside.model_kinds import ask
from cutaway.inside.patching.metrics import LogitDifference
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.reports.axes import token_words
from cutaway.inside.reports.circuit_pictures import short_name
from cutaway.inside.reports.inspect import inspect
from cutaway.inside.reports.options import AskOptions
from cutaway.inside.reports.to_picture import to_picture
from cutaway.inside.residual.logit_lens import logit_lens
from cutaway.inside.residual.stream import decompose_residual
from cutaway.pictures import CircuitGraph, ColouredText, HeatMap, LensGrid, PatchEvidence
from cutaway.pictures.pages import page_of

TOKENIZER = pieces()
IDS = torch.tensor([TOKENIZER.encode(TEXT, special=False)])
OTHER = torch.tensor([[*TOKENIZER.encode(TEXT, special=False)[::-1]]])


def model():
    return tiny("gpt2", vocab_size=280, max_len=64, dtype=torch.float32)


def test_of_a_lens() -> None:
    found = logit_lens(model(), IDS)
    picture = to_picture(found, TOKENIZER, IDS)
    assert isinstance(picture, LensGrid)
    assert np.allclose(picture.values, found.top_probabilities[:, 0, :, 0])
    assert picture.layers == ("embedding", "after block 0", "after block 1")
    assert picture.positions == token_words(TOKENIZER, IDS)
    assert picture.positions[0] == "the"
    some = logit_lens(model(), IDS, positions=[-1], tokens=[5])
    assert to_picture(some, TOKENIZER, IDS, follow=0).positions == (token_words(TOKENIZER, IDS)[-1],)  # type: ignore[attr-defined]


@pytest.mark.parametrize("over", ["residual", "heads"])
def test_of_a_sweep(over: str) -> None:
    found = patch_sweep(model(), IDS, OTHER, LogitDifference(1, 2), over=over)
    picture = to_picture(found, TOKENIZER, IDS)
    assert isinstance(picture, HeatMap)
    assert np.allclose(picture.values, found.effects, atol=0.006 * float(found.effects.abs().max()))
    assert picture.columns[0] == ("the" if over == "residual" else "0")
    assert picture.rows == (("into block 0", "into block 1") if over == "residual" else ("0", "1"))
    after = patch_sweep(model(), IDS, OTHER, LogitDifference(1, 2), over="residual_after")
    assert after.layer_names == ("after block 0", "after block 1")
    both = patch_sweep(model(), IDS, OTHER, LogitDifference(1, 2), over="heads", positions=[0, -1])
    assert to_picture(both, TOKENIZER, IDS).values.shape in ((8, 2), (2, 2))  # type: ignore[attr-defined]


def test_of_an_attribution_its_words() -> None:
    found = explain_next(model(), TOKENIZER, TEXT, method="gradient_x_input")  # type: ignore[arg-type]
    picture = to_picture(found, TOKENIZER)
    assert isinstance(picture, ColouredText)
    assert "naïve" in picture.sources
    assert np.isclose(picture.values.sum(), float(found.scores.sum()), rtol=1e-3)
    image = np.zeros((3, 8, 8), np.uint8)
    looked = explain_image(tiny("vit", dtype=torch.float32), image, method="gradient_x_input")
    assert isinstance(to_picture(looked, image=image), PatchEvidence)
    assert isinstance(to_picture(looked), HeatMap)


def test_of_writers_and_of_what_they_wrote() -> None:
    found = decompose_residual(model(), IDS)
    picture = to_picture(found, TOKENIZER, IDS)
    assert isinstance(picture, HeatMap)
    assert picture.columns == token_words(TOKENIZER, IDS)
    logits = to_picture(decompose_residual(model(), IDS, positions=[-1]).to_logits([3]), TOKENIZER, IDS)
    assert logits.columns == (token_words(TOKENIZER, IDS)[-1],)  # type: ignore[attr-defined]


def test_of_a_circuit_the_edges_that_were_measured_and_no_others() -> None:
    nodes = ("decoder.0.attention.1", "decoder.0.feed_forward", "decoder.1.attention.2")
    effects = Circuit("c", {}, nodes, roles={nodes[0]: "mover"}, effects={nodes[0]: 0.5, nodes[2]: -0.2})
    picture = to_picture(effects)
    assert isinstance(picture, CircuitGraph)
    assert picture.nodes == ("0.1 mover 0.5", "0.ff", "1.2 −0.2")
    assert len(picture.edges) == 0
    assert picture.layer_names == ("block 0", "block 1")
    assert all(name in picture.text() for name in picture.nodes)
    assert "not measured" in picture.sentence()
    edges = Circuit(
        "c", {}, nodes, edges=(("input", nodes[0], 1.0), (nodes[0], nodes[1], 0.5), (nodes[1], nodes[2], 0.1))
    )
    drawn = to_picture(edges)
    assert isinstance(drawn, CircuitGraph)
    assert drawn.edges.tolist() == [[3, 0, 1.0], [0, 1, 0.5], [1, 2, 0.1]]
    assert drawn.nodes == ("0.1", "0.ff", "1.2", "input")
    assert drawn.layer_names == ("input", "block 0 attention", "block 0 feed-forward", "block 1 attention")
    assert short_name("encoder.2.attention.3") == "encoder.2.3"
    assert short_name("decoder.2.cross.3") == "2.cross.3"


def test_a_decoder_stands_above_its_encoder() -> None:
    nodes = ("decoder.0.cross.1", "encoder.0.attention.2", "encoder.1.attention.0", "decoder.1.attention.3")
    edges = ((nodes[2], nodes[0], 0.5), (nodes[1], nodes[2], 0.2), (nodes[0], nodes[3], 0.1))
    drawn = to_picture(Circuit("c", {}, nodes, edges=edges))
    assert isinstance(drawn, CircuitGraph)
    assert drawn.layer_names == ("encoder block 0", "encoder block 1", "decoder block 0", "decoder block 1")
    assert list(drawn.layers) == [2, 0, 1, 3]


def test_of_scores_and_of_nothing_else() -> None:
    scores = {f"decoder.{layer}.attention.{head}": layer + head / 10 for layer in range(2) for head in range(12)}
    picture = to_picture(HeadScores("looks", scores))
    assert isinstance(picture, HeatMap)
    assert picture.values.shape == (2, 12)
    assert picture.columns == tuple(map(str, range(12)))
    with pytest.raises(InputError, match="is not the name of a node"):
        to_picture(Circuit("c", {}, ("transformer.h.0.attn",)))
    with pytest.raises(InputError, match="no picture of a int"):
        to_picture(3)


def test_heads_of_an_encoder_and_of_a_decoder_have_rows_of_their_own() -> None:
    scores = {"encoder.0.attention.0": 1.0, "decoder.0.attention.0": 2.0, "decoder.0.cross.0": 4.0}
    picture = to_picture(HeadScores("looks", scores))
    assert isinstance(picture, HeatMap)
    assert (picture.rows, picture.columns) == (("encoder 0", "decoder 0"), ("0", "cross 0"))
    assert np.array_equal(picture.values, [[1, np.nan], [2, 4]], equal_nan=True)
    del scores["encoder.0.attention.0"]
    assert to_picture(HeadScores("looks", scores)).rows == ("0",)  # type: ignore[attr-defined]


def test_a_page_of_an_inspection_is_text_whatever_the_text() -> None:
    found = inspect(model(), TOKENIZER, "the <script>old</script> dog", method="gradient_x_input", show=["attribution"])
    page = page_of("<b>&", "<i>", found.pictures().values())
    assert "<b>&" not in page
    assert "<i>" not in page
    assert "<script>old" not in page


@pytest.mark.parametrize("name", ["gpt2", "bert", "label", "vit", "translator"])
def test_one_pass_shows_what_the_model_says_who_wrote_it_and_where_it_looked(name: str, tmp_path: Path) -> None:
    folder = write_models(tmp_path)
    its, tokenizer = load(folder[name]), tokenizer_of(folder[name])
    given = folder["a.png"] if name == "vit" else ASKED[name]
    answers = {"gpt2": " dog", "bert": "dog", "label": "1", "vit": "3", "translator": "a dog"}
    passes = []
    last = (its.decoder if hasattr(its, "decoder") else its.encoder)[-1]  # type: ignore[union-attr]
    hook = last.register_forward_hook(lambda *_: passes.append(1))
    asking: dict[str, Any] = {"target": answers[name], "k": 3}
    found = inspect(its, tokenizer, given, show=("answer", "writers", "heads"), **asking)
    hook.remove()
    assert len(passes) == 1
    _, asked = ask(its, tokenizer, given, AskOptions(), target=answers[name])
    with torch.no_grad():
        logits = its(*asked.inputs, **asked.more)
    at = asked.reads.argmax(dim=1)
    scores = logits if logits.ndim == 2 else logits[0, at]
    alone = inspect(its, tokenizer, given, show=("answer",), **asking)
    for ours, theirs, row in zip(found.guesses, alone.guesses, scores.softmax(-1), strict=True):
        assert [text for text, _ in ours] == [text for text, _ in theirs]
        for (_, p), (_, other) in zip(ours, theirs, strict=True):
            assert p == pytest.approx(other, abs=1e-5)
            assert float((row - p).abs().min()) < 1e-5
    assert found.writers is not None
    right = scores.gather(1, torch.tensor(asked.right)[:, None])[:, 0]
    rival = right - found.writers.scores.sum(dim=0)  # a column adds up to the difference of two logits
    assert all(float((row - one).abs().min()) < 1e-3 for row, one in zip(scores, rival, strict=True))
    assert found.patterns is not None
    for part, pattern in attention_patterns(its, *asked.inputs, **asked.more).items():
        assert torch.equal(found.patterns[part], pattern[0])


def test_the_words_of_a_question_are_named_by_the_side_that_they_stand_on(tmp_path: Path) -> None:
    folder = write_models(tmp_path)
    sides_of = {"gpt2": ["text"], "bert": ["text"], "label": ["text"], "translator": ["source", "target"]}
    for name, sides in sides_of.items():
        its, tokenizer = load(folder[name]), tokenizer_of(folder[name])
        _, asked = ask(its, tokenizer, ASKED[name], AskOptions(), target="a dog" if name == "translator" else None)
        assert [*asked.texts] == sides
        assert [len(words) for words in asked.texts.values()] == [one.shape[1] for one in asked.inputs]
