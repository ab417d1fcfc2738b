"""Whoever gives a score refuses one that is not finite, and names the weight that is to blame: in Python and as a
command, which ends with 2 and prints no answer."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.inside_commands import ASKED, run, write_models
from helpers.tiny_models import ALL, tiny

import cutaway
from cutaway.before.ladder.train_network import Network
from cutaway.before.shannon.next_letter import NextLetter
from cutaway.checkpoints import load, load_tokenizer, save
from cutaway.decoding.alignment import align
from cutaway.decoding.confidence import confidence_of
from cutaway.decoding.generate import write_texts
from cutaway.decoding.options import GenerationOptions
from cutaway.errors import InputError
from cutaway.evaluation import Pair, evaluate
from cutaway.evaluation.lambada import LastWord
from cutaway.evaluation.perplexity import surprisal
from cutaway.evaluation.winograd import Schema
from cutaway.inside.patching.sweep import patch_sweep
from cutaway.inside.reports.inspect import inspect
from cutaway.inside.residual.logit_lens import logit_lens
from cutaway.model.finite import check_scores, not_finite
from cutaway.model.model import Model
from cutaway.model.precision import to_int8
from cutaway.pictures.terminal_text import json_text

TEXT = ASKED["gpt2"]
IDS = torch.arange(8)[None]
SCHEMA = Schema("the dog saw the cat because ", " ran", ("the dog", "the cat"), 0)
ASKING: list[tuple[str, str, Callable[..., Any]]] = [
    ("gpt2", "generate", lambda m, t: cutaway.generate(m, t, TEXT)),
    ("gpt2", "generate by chance", lambda m, t: cutaway.generate(m, t, TEXT, temperature=0.8, top_p=0.9)),
    ("gpt2", "generate by rules", lambda m, t: cutaway.generate(m, t, TEXT, repetition_penalty=1.2, min_tokens=2)),
    ("gpt2", "a beam", lambda m, t: write_texts(m, t, [TEXT], GenerationOptions(beam=3, max_tokens=4))),
    ("gpt2", "a draft", lambda m, t: cutaway.generate(m, t, TEXT, draft=m, max_tokens=4)),
    ("gpt2", "greedy", lambda m, t: cutaway.decoding.greedy(m, IDS, n=3)),
    ("gpt2", "how sure", lambda m, t: confidence_of(m, t, TEXT, [5, 6])),
    ("gpt2", "embed", lambda m, t: cutaway.embed(m, t, [TEXT])),
    ("gpt2", "surprisal", lambda m, t: surprisal(m, list(range(40)))),
    ("gpt2", "evaluate", lambda m, t: evaluate(m, t, [TEXT])),
    ("gpt2", "pairs", lambda m, t: evaluate(m, t, [Pair("a dog", "a cat")])),
    ("gpt2", "schemas", lambda m, t: evaluate(m, t, [SCHEMA])),
    ("gpt2", "last words", lambda m, t: evaluate(m, t, [LastWord("the old man's dog", "ran")])),
    ("gpt2", "lens", lambda m, t: logit_lens(m, IDS)),
    ("gpt2", "letters", lambda m, t: NextLetter(m, t, "abc", str.lower)(["the dog"])),
    ("gpt2", "ladder", lambda m, t: Network(m, 0).next_probabilities([5, 6])),
    ("gpt2", "inspect", lambda m, t: inspect(m, t, TEXT, show=["answer"])),
    ("gpt2", "attribution", lambda m, t: inspect(m, t, TEXT, show=["attribution"], steps=2)),
    ("gpt2", "sweep", lambda m, t: patch_sweep(m, IDS, IDS + 1, metric=lambda logits: logits[:, -1, 0])),
    ("translator", "translate", lambda m, t: cutaway.translate(m, t, "a dog")),
    ("translator", "align", lambda m, t: align(m, t, ["a dog"], ["ein Hund"])),
    ("translator", "evaluate", lambda m, t: evaluate(m, t, ["a dog"], ["ein Hund"])),
    ("bert", "fill", lambda m, t: cutaway.fill(m, t, ASKED["bert"])),
    ("bert", "embed", lambda m, t: cutaway.embed(m, t, [ASKED["bert"]])),
    ("bert", "evaluate", lambda m, t: evaluate(m, t, ["the dog barked . no one saw the cat"])),
    ("bert", "pairs", lambda m, t: evaluate(m, t, [Pair("the dog", "the cat")])),
    ("label", "classify", lambda m, t: cutaway.classify(m, t, ASKED["label"])),
    ("label", "evaluate", lambda m, t: evaluate(m, t, ["a good film", "a film"], [0, 1])),
    ("label", "inspect", lambda m, t: inspect(m, t, ASKED["label"], show=["answer"])),
    ("vit", "classify", lambda m, t: cutaway.classify(m, np.zeros((3, 8, 8), np.uint8))),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("models"))


def damaged(folder: Path, number: float = float("nan")) -> tuple[Model, str]:
    """One number in the last block of the decoder, or of an encoder by itself."""
    model = load(folder)
    name = [name for name, _ in model.named_parameters() if name.endswith("feed_forward.down.weight")][-1]
    model.get_parameter(name).data[3, 2] = number
    return model, name


@pytest.mark.parametrize(("name", "what", "ask"), ASKING, ids=lambda x: x if isinstance(x, str) else "")
def test_damaged_weights_are_named(folders: dict[str, Path], name: str, what: str, ask: Callable[..., Any]) -> None:
    model, weight = damaged(folders[name])
    tokenizer = None if name == "vit" else load_tokenizer(folders[name])
    said = rf"because its weights are damaged: {weight} holds nan at \[3, 2\] \(not finite: 1 of [\d,]+ numbers\)"
    if name == "translator" and what == "align":  # what a last layer looks at does not depend on what it computes
        model.get_parameter("target_embedding.tokens.weight").data[:] = float("nan")
        said = "because its weights are damaged: "
    with pytest.raises(InputError, match=said):
        ask(model, tokenizer)


@pytest.mark.parametrize("length", [1, 2, 7, 15, 16, 17])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "roformer"])
def test_whichever_weight_is_damaged_the_scores_are(name: str, length: int) -> None:
    """PyTorch's attention on a CPU gives 0 for a query of NaN that looks at fewer than 16 keys."""
    model = tiny(name, dtype=torch.float32)
    ids = torch.arange(length)[None] % 20
    for weight, tensor in model.named_parameters():
        if "pooler" in weight or "next_sentence" in weight or "source" in weight:
            continue
        kept = tensor.detach().clone()
        tensor.data.view(-1)[0] = float("nan")  # of queries, keys and values in one matrix, a query's
        for gradients in (False, True):
            with torch.set_grad_enabled(gradients):
                assert not model(ids).isfinite().all(), (weight, gradients)
        tensor.data[:] = kept
    assert model(ids).isfinite().all()


def test_an_answer_that_grew_too_large_says_so(folders: dict[str, Path]) -> None:
    model, tokenizer = load(folders["gpt2"]), load_tokenizer(folders["gpt2"])
    model.head.register_forward_hook(lambda *_: torch.full((1, 1, 280), float("inf")))
    with pytest.raises(InputError, match=r"although its weights are: they grow beyond float32$"):
        cutaway.generate(model, tokenizer, TEXT)
    with pytest.raises(InputError, match="beyond float16; load it in float32"):
        check_scores(load(folders["gpt2"], dtype=torch.float16), torch.tensor([float("nan")]))


@pytest.mark.parametrize("number", [float("inf"), float("-inf")])
def test_no_number_of_any_kind_passes(folders: dict[str, Path], number: float) -> None:
    model, weight = damaged(folders["gpt2"], number)
    assert not_finite(load(folders["gpt2"])) == []
    assert [one.split(" at ")[0] for one in not_finite(model)] == [f"{weight} holds {number}"]
    check_scores(model, torch.zeros(3), np.zeros(3))
    for scores in (torch.tensor([0.0, number]), np.array([0.0, number])):
        with pytest.raises(InputError, match="not finite numbers"):
            check_scores(model, torch.zeros(1), scores)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_whatever_the_model_computes_with_is_looked_at(name: str, int8: bool) -> None:
    """Its weights, the scales and biases of 8 bits, and the tables that are stored nowhere."""
    model = tiny(name, dtype=torch.float32)
    model = to_int8(model) if int8 else model
    held = dict((*model.named_parameters(), *model.named_buffers()))
    for weight, tensor in held.items():
        if tensor.is_floating_point():
            last = tuple(side - 1 for side in tensor.shape)
            number, tensor.data[last] = tensor.data[last].clone(), float("nan")
            said = rf"weights are damaged: {weight} holds nan at {list(last)} (not finite: 1 of {tensor.numel():,}"
            with pytest.raises(InputError, match=re.escape(said)):
                check_scores(model, torch.tensor(float("nan")))
            tensor.data[last] = number
    assert not_finite(model) == []


COMMANDS: list[tuple[str, list[str]]] = [
    ("bert", ["fill", ASKED["bert"], "--model"]),
    ("label", ["classify", ASKED["label"], "--model"]),
    ("gpt2", ["embed", TEXT, "--model"]),
    ("gpt2", ["generate", TEXT, "--model"]),
    ("translator", ["translate", "a dog", "--model"]),
    ("gpt2", ["inspect", TEXT]),
    ("gpt2", ["lens", TEXT]),
    ("gpt2", ["patch", TEXT, TEXT.replace("dog", "cat")]),
    ("label", ["evaluate", "table.tsv"]),
    ("gpt2", ["evaluate", "text.txt"]),
]


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=lambda x: x if isinstance(x, str) else x[0])
def test_commands_print_no_answer(
    folders: dict[str, Path],
    tmp_path: Path,
    name: str,
    words: list[str],
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.tsv").write_text("text\tlabel\na good film\t0\na film\t1\n")
    (tmp_path / "text.txt").write_text(f"{TEXT} the cat sat down.\n")
    model, weight = damaged(folders[name])
    save(model, tmp_path / "model", load_tokenizer(folders[name]))
    command, *rest = words
    rest = [*rest, "model"] if "--model" in rest else ["model", *rest]
    ran = run(command, *rest, *["--json"] * as_json)
    assert (ran.exit_code, ran.stdout) == (2, ""), ran.output
    assert f"error: this model's scores are not finite numbers, because its weights are damaged: {weight}" in ran.stderr


def test_json_has_no_number_that_is_none() -> None:
    said = json_text({"a": float("nan"), "b": [1.5, float("inf"), ("x", -float("inf"))], "c": {"d": True, "e": "ä"}})
    assert said == '{"a": null, "b": [1.5, null, ["x", null]], "c": {"d": true, "e": "ä"}}'
    assert json.loads(json_text([1], 2)) == [1]
