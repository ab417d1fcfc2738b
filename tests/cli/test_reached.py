"""Every option reaches what does the work: with its value, under its name, and nothing else is changed by it."""

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from inspect import signature, unwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from typer.testing import CliRunner

from cutaway import cli
from cutaway.arguments import Options
from cutaway.checkpoints import save
from cutaway.errors import InputError

# command → what does the work, the words of the command without options, what it is given then, and for each option
# what is given otherwise
Case = tuple[str, str, dict[str, Any], list[tuple[str, dict[str, Any]]]]
CASES: dict[str, Case] = {
    "generate": (
        "cutaway.decoding.generate.stream_text",
        "generate Hi --model model",
        {"max_tokens": 100, "temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "repetition_penalty": 1.0,
         "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": None,
         "no_repeat_ngram": None, "bad_words": (), "min_tokens": 0, "allow": None, "stop": [],
         "beam": 1, "n_best": 1, "groups": 1, "diversity": None, "prune": None, "seed": 0, "rules": ()},
        [("--max-tokens 7", {"max_tokens": 7}), ("--temperature 0.5", {"temperature": 0.5}),
         ("--top-k 3 --temperature 1", {"top_k": 3, "temperature": 1.0}),
         ("--top-p 0.5 --temperature 1", {"top_p": 0.5, "temperature": 1.0}),
         ("--min-p 0.1 --temperature 1", {"min_p": 0.1, "temperature": 1.0}),
         ("--repetition-penalty 0.5", {"repetition_penalty": 0.5}),
         ("--presence-penalty -1", {"presence_penalty": -1.0}),
         ("--frequency-penalty 0.5", {"frequency_penalty": 0.5}),
         ("--no-repeat-ngram 2", {"no_repeat_ngram": 2}),
         ("--bad-words a --bad-words b", {"bad_words": ["a", "b"]}), ("--min-tokens 3", {"min_tokens": 3}),
         ("--allow [ab]+", {"allow": "[ab]+"}), (r"--stop a\n --stop b", {"stop": ["a\n", "b"]}),
         ("--beam 4", {"beam": 4}), ("--beam 4 --groups 2", {"beam": 4, "groups": 2}),
         ("--beam 4 --groups 2 --diversity 0.25", {"beam": 4, "groups": 2, "diversity": 0.25}),
         ("--beam 4 --prune 2", {"beam": 4, "prune": 2.0}), ("--seed 9", {"seed": 9})],
    ),
    "several texts": (
        "cutaway.decoding.generate.write_texts",
        "generate Hi --model model --beam 3 --n-best 3",
        {"prompts": ["Hi"], "max_tokens": 100, "beam": 3, "n_best": 3, "stop": [], "seed": 0},
        [("--n-best 2", {"n_best": 2}), ("--nbest 2", {"n_best": 2}), ("--max-tokens 7", {"max_tokens": 7}),
         (r"--stop a\n", {"stop": ["a\n"]})],
    ),
    "vectors": (
        "cutaway.before.vectors.skip_gram.train_skip_gram",
        "vectors text.txt --out new",
        {"d": 100, "window": 5, "negatives": 5, "min_count": None, "sample": None, "rate": 0.05, "epochs": 3,
         "seed": 0},
        [("--d 7", {"d": 7}), ("--window 2", {"window": 2}), ("--negatives 3", {"negatives": 3}),
         ("--min-count 4", {"min_count": 4}), ("--sample 0.5", {"sample": 0.5}), ("--rate 0.5", {"rate": 0.5}),
         ("--epochs 2", {"epochs": 2}), ("--seed 9", {"seed": 9})],
    ),
    "chomsky": (
        "cutaway.before.chomsky.experiment.run_experiment",
        "chomsky --language local --model none",
        {"languages": ["local"], "models": ["none"], "length": 16, "steps": 500, "minutes": None, "words": 100,
         "pool": 4096, "seed": 0},
        [("--language abc", {"languages": ["local", "abc"]}), ("--model lstm", {"models": ["none", "lstm"]}),
         ("--model none", {}), ("--length 5", {"length": 5}), ("--steps 3", {"steps": 3}),
         ("--minutes 0.5", {"minutes": 0.5}), ("--words 7", {"words": 7}), ("--seed 9", {"seed": 9})],
    ),
    "compare": (
        "cutaway.before.ladder.compare.compare",
        "compare text.txt --out new",
        {"files": [Path("text.txt")], "out": Path("new"), "minutes": 5.0, "steps": None, "changes": (), "start": "\n",
         "seed": 0, "resume": False},
        [("--minutes 2", {"minutes": 2.0}), ("--steps 4", {"steps": 4}), ("--start It", {"start": "It"}),
         ("--set a.b=1 --set c.d=2", {"changes": ["a.b=1", "c.d=2"]}), ("--seed 9", {"seed": 9})],
    ),
    "tokenizer train": (
        "cutaway.tokens.train_tokenizer",
        "tokenizer train text.txt --out new",
        {"kind": "bpe", "vocab_size": None, "lowercase": False, "mask": False, "tags": "", "min_frequency": 1},
        [("--kind unigram", {"kind": "unigram"}), ("--vocab 300", {"vocab_size": 300}),
         ("--lowercase", {"lowercase": True}), ("--mask", {"mask": True}), ("--tags de,en", {"tags": "de,en"}),
         ("--min-frequency 3", {"min_frequency": 3})],
    ),
    "verify": (
        "cutaway.certificate.verify",
        "verify model --device cpu",
        {"model": Path("model"), "seed": 0, "quick": False, "length": None, "device": "cpu"},
        [("--quick", {"quick": True}), ("--seed 9", {"seed": 9}), ("--length 12", {"length": 12})],
    ),
    "ngram": (
        "cutaway.before.ngrams.smoothing.train_ngrams",
        "ngram text.txt",
        {"order": 3, "smoothing": "kneser-ney", "folder": None},
        [("--order 5", {"order": 5}), ("--smoothing back-off", {"smoothing": "back-off"})],
    ),
    "ngram of classes": (
        "cutaway.before.ngrams.ngram_of_classes.train_class_ngrams",
        "ngram text.txt --classes 3",
        {"order": 3, "classes": 3, "smoothing": "kneser-ney", "most": 10_000},
        [("--order 2", {"order": 2}), ("--most 7", {"most": 7}),
         ("--smoothing back-off", {"smoothing": "back-off"})],
    ),
    "text of ngrams": (
        "cutaway.before.units.read_ids",
        "ngram text.txt",
        {"files": [Path("text.txt")], "split": "file"},
        [("--split line", {"split": "line"})],
    ),
    "text of vectors": (
        "cutaway.before.units.read_ids",
        "vectors text.txt --out new",
        {"files": [Path("text.txt")], "split": "file"},
        [("--split line", {"split": "line"})],
    ),
    "pack": (
        "cutaway.checkpoints.convert.save_folder",
        "pack model new",
        {"store": "int8", "shard_size": None},
        [("--store bf16", {"store": "bf16"}), ("--shard-size 0.5", {"shard_size": 500_000})],
    ),
    "export": (
        "cutaway.checkpoints.export_to",
        "export model new",
        {"to": "hf", "quantization": None},
        [("--to onnx", {"to": "onnx"}),
         ("--to ctranslate2 --quantization int8", {"to": "ctranslate2", "quantization": "int8"})],
    ),
    "inspect": (
        "cutaway.inside.reports.inspect.inspect_sentences",
        "inspect model Hi",
        {"text": "Hi", "target": None, "versus": None, "to": None, "method": "integrated", "steps": 16, "show": (),
         "layer": None, "head": None, "k": 5, "as_trained": False},
        [("--steps 3", {"steps": 3}), ("--k 2", {"k": 2}), ("--layer 1", {"layer": 1}), ("--head 1", {"head": 1}),
         ("--show heads --show answer", {"show": ["heads", "answer"]}), ("--to de", {"to": "de"}),
         ("--target !", {"target": "!"}), ("--target ! --versus ?", {"target": "!", "versus": "?"}),
         ("--method rollout", {"method": "rollout"}), ("--method gradient", {"method": "gradient"})],
    ),
    "inspect as one sentence": (
        "cutaway.inside.reports.inspect.inspect",
        "inspect model Hi --whole",
        {"text": "Hi", "method": "integrated", "steps": 16, "show": (), "k": 5},
        [("--steps 3", {"steps": 3}), ("--k 2", {"k": 2}), ("--show heads", {"show": ["heads"]})],
    ),
    "lens": (
        "cutaway.inside.reports.lens_report.logit_lens",
        "lens model Hi",
        {"stream": None, "top": 5, "tokens": [], "tuned": None},
        [("--top 2", {"top": 2})],
    ),
    "options of a lens": (
        "cutaway.inside.reports.lens_report.lens",
        "lens model Hi",
        {"text": "Hi", "follow": (), "stream": None, "tuned": None, "target": None, "top": 5, "to": None},
        [("--top 2", {"top": 2}), ("--follow a --follow b", {"follow": ["a", "b"]}),
         ("--stream decoder", {"stream": "decoder"}),
         ("--tuned a.safetensors", {"tuned": Path("a.safetensors")}), ("--target Hallo", {"target": "Hallo"}),
         ("--to de", {"to": "de"})],
    ),
    "describe": (
        "cutaway.inside.description.describe",
        "describe gpt2",
        {"batch": 1, "length": None, "source_length": None, "dtype": torch.float32},
        [("--batch 3", {"batch": 3}), ("--length 9", {"length": 9}), ("--dtype bfloat16", {"dtype": torch.bfloat16})],
    ),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(tiny("gpt2", vocab_size=400, start_id=1, dtype=torch.float32), "model", byte_level())
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 20)
    return tmp_path


def hearing(target: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a function is given from now on; it does nothing else."""
    module, _, name = target.rpartition(".")
    whole: Callable[..., Any] = getattr(import_module(module), name)
    told: list[dict[str, Any]] = []

    def hear(*given: Any, **more: Any) -> Any:
        bound = signature(unwrap(whole)).bind(*given, **more)
        bound.apply_defaults()
        heard = {key: list(x) if isinstance(x, list) else x for key, x in bound.arguments.items()}
        asked = [x for x in heard.values() if isinstance(x, Options)]
        told.append(heard | {one.name: getattr(x, one.name) for x in asked for one in fields(x)})
        raise InputError("heard")

    monkeypatch.setattr(f"{module}.{name}", hear)
    return told


@pytest.mark.parametrize("name", CASES)
def test_every_option_reaches_what_does_the_work(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, words, usual, options = CASES[name]
    told = hearing(target, monkeypatch)
    for option, changes in [("", {}), *options]:
        ended = CliRunner().invoke(cli.app, [*words.split(), *option.split()])
        assert told, (option, ended.output, ended.stderr)
        given = {key: value for key, value in told.pop().items() if key in usual}
        assert given == usual | changes, option
