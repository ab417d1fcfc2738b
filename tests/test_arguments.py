"""What a Python call is given is held to its hints: odd things are named, with what is wanted."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_type_hints

import jaxtyping
import numpy as np
import pytest
import torch
from helpers.inside_commands import ASKED, write_models
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import translator
from jaxtyping import Bool, Int
from torch import Tensor

import cutaway
from cutaway import decoding, inside
from cutaway.arguments import Options, checked, fits, in_words, option, with_options
from cutaway.errors import CutawayError, InputError, UnknownArgument
from cutaway.evaluation import evaluate

NAN = float("nan")
FIT: list[tuple[object, Any]] = [
    (3, int), (3, float), (2.5, float), (float("inf"), float), (True, bool), ("a", str), (None, int | None),
    ("a", Path | str), (Path("a"), Path | str), (["a"], Sequence[str]), (("a",), str | Sequence[str]),
    ((x for x in "ab"), Iterable[str]), ({"a": "b"}, Mapping[str, str]), (print, Callable[[int], None]),
    ("mean", Literal["mean", "first"]), (("a", "b"), tuple[str, str]), (range(3), Sequence[int]), ([], Sequence[int]),
    (torch.zeros(2, 3, dtype=torch.long), Int[Tensor, "batch seq"]), (torch.zeros(2), torch.Tensor), (print, Any),
    (torch.float32, torch.dtype), ("cpu", torch.device | str),
]  # fmt: skip
NOT: list[tuple[object, Any]] = [
    (True, int), (1.0, int), ("3", int), (None, int), (NAN, float), (True, float), ("1", float), (1, bool), (b"a", str),
    (1, str), (None, str), (b"a", Path | str), ("ab", Sequence[str]), (b"ab", Sequence[int]), (["a", 1], Sequence[str]),
    ((x for x in "ab"), Sequence[str]), ([["a"]], str | Sequence[str]), ({1: "b"}, Mapping[str, str]), ({}, str),
    (3, Callable[[int], None]), ("last", Literal["mean", "first"]), (1, Literal[True]), (("a",), tuple[str, str]),
    (torch.zeros(2, 3), Int[Tensor, "batch seq"]), (torch.zeros(3, dtype=torch.long), Int[Tensor, "batch seq"]),
    (torch.tensor(1.0), torch.Tensor), (torch.tensor(1.0), Iterable[str]), (torch.ones(2), Bool[Tensor, " batch"]),
    ("float32", torch.dtype), (np.zeros(2), Sequence[float]),
]  # fmt: skip


def short_id(value: object) -> str:
    return str(value).partition(" at 0x")[0]  # an address differs between the processes that run the tests


@pytest.mark.parametrize(("value", "hint"), FIT, ids=short_id)
def test_what_fits(value: object, hint: Any) -> None:
    assert fits(value, hint)


@pytest.mark.parametrize(("value", "hint"), NOT, ids=short_id)
def test_what_does_not(value: object, hint: Any) -> None:
    assert not fits(value, hint)


def test_what_is_wanted_in_words() -> None:
    wanted = [int | None, Path | str, Sequence[str], str | Sequence[str], Literal["a", "b"], Callable[[], None]]
    assert [in_words(hint) for hint in wanted] == [
        "a whole number or None",
        "a path",
        "a list of texts",
        "a text or a list of texts",
        "one of 'a', 'b'",
        "a function",
    ]


def test_a_call() -> None:
    @checked
    def double(n: int, *more: str, scale: float = 1.0, **rest: Any) -> tuple[object, ...]:
        return n, more, scale, rest

    assert double(np.int64(3), "a", scale=np.float32(0.5), odd=[1]) == (3, ("a",), 0.5, {"odd": [1]})
    assert [type(x) for x in double(np.int64(3), scale=np.float32(0.5))[::2]] == [int, float]
    assert [double(n)[0] for n in (2**63 - 1, 1 - 2**63)] == [2**63 - 1, 1 - 2**63]
    for args, named, said in (
        (("3",), {}, r"n='3' is not a whole number$"),
        ((1, 2), {}, r"more=2 is not a text$"),
        ((1,), {"scale": NAN}, r"scale=nan is not a number$"),
        ((2**63,), {}, r"n=9223372036854775808 is too large for a number of 64 bits"),
        ((-(2**63),), {}, r"n=-9223372036854775808 is too large for a number of 64 bits"),
        ((10**30,), {}, r"n=1000000000000000000000000000000 is too large for a number of 64 bits"),
        ((["x" * 999],), {}, r"n=\['x{58}… is not a whole number$"),
    ):
        with pytest.raises(InputError, match=said):
            double(*args, **named)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        double()


@dataclass(frozen=True, kw_only=True)
class Soup(Options):
    """What goes into it."""

    salt: float = option(1.0, "Grams of salt.", least=0)
    share: float | None = option(None, "Of the pot.", above=0, most=1)
    max_tokens: int = option(10, "How many noodles.", least=1, most=2000)
    heat: float = option(1.0, "May be without end.", infinite=True)

    def check(self) -> None:
        if self.salt > self.max_tokens:
            raise InputError("more salt than noodles")


@with_options
def cook(pot: str, *, lid: bool = True, options: Soup) -> tuple[str, bool, Soup]:
    """Cooks a soup."""
    return pot, lid, options


def test_options_of_a_call() -> None:
    assert cook("big") == ("big", True, Soup())
    assert cook("big", lid=False, salt=np.float32(2.5)) == ("big", False, Soup(salt=2.5))
    assert type(cook("big", max_tokens=np.int64(2))[2].max_tokens) is int
    assert cook("big", options=Soup(salt=3)) == cook("big", salt=3)
    assert cook("big", heat=float("inf"))[2].heat == float("inf")
    assert str(inspect.signature(cook)).startswith(
        "(pot: str, *, lid: bool = True, salt: float = 1.0, share: float | None = None, max_tokens: int = 10, "
        "heat: float = 1.0) -> tuple"
    )
    assert cook.__doc__ is not None
    assert "Cooks a soup." in cook.__doc__
    assert "    salt: Grams of salt." in cook.__doc__
    named: dict[str, Any]
    for named, said in (
        ({"salt": -1}, "salt=-1 must be at least 0$"),
        ({"salt": float("inf")}, "salt=inf must be a finite number$"),
        ({"salt": "much"}, "salt='much' is not a number$"),
        ({"share": 0.0}, "share=0.0 must be above 0 and at most 1$"),
        ({"share": 1.5}, "share=1.5 must be above 0 and at most 1$"),
        ({"max_tokens": 2001}, "max_tokens=2,001 must be at least 1 and at most 2,000$"),
        ({"salt": 11}, "more salt than noodles"),
    ):
        with pytest.raises(InputError, match=said):
            cook("big", **named)


def test_options_that_do_not_exist() -> None:
    for name, meant in (
        ("slat", "salt"),
        ("max_new_tokens", "max_tokens"),
        ("max_length", "max_tokens"),
        ("lit", "lid"),
    ):
        with pytest.raises(UnknownArgument, match=f"cook has no argument '{name}': did you mean {meant}"):
            cook("big", **{name: 1})
    with pytest.raises(TypeError, match=r"cook has no argument 'pepper': its arguments are pot, lid, salt, share"):
        cook("big", pepper=1)
    with pytest.raises(TypeError, match=r"cook has no argument 'salt'|unexpected keyword argument 'salt'"):
        cook("big", options=Soup(), salt=1)


def test_the_names_of_hugging_face_lead_to_ours(loaded: dict[str, Any]) -> None:
    for name, meant in (
        ("max_new_tokens", "max_tokens"), ("num_beams", "beam"), ("num_return_sequences", "n_best"),
        ("do_sample", "temperature"), ("no_repeat_ngram_size", "no_repeat_ngram"), ("stop_strings", "stop"),
    ):  # fmt: skip
        with pytest.raises(UnknownArgument, match=f"did you mean {meant}"):
            cutaway.generate(*loaded["gpt2"], "the dog", **{name: 2})
    with pytest.raises(UnknownArgument, match="did you mean wanted"):
        evaluate(*loaded["label"], ["a film"], labels=[0])


def test_every_public_function_looks_at_its_arguments() -> None:
    free = {"models", "compare_sweeps"}  # which take none, or what only we make
    functions = {name: getattr(cutaway, name) for name in cutaway.__all__}
    functions = {name: one for name, one in functions.items() if inspect.isfunction(one) and name not in free}
    for name, function in functions.items():
        assert get_type_hints(function), name
        assert getattr(function, "checked", False), name


# --- a sweep ----------------------------------------------------------------------------------------------------------

ODD: list[object] = [
    None, b"bytes", -1, 0, 2.5, NAN, float("inf"), 10**30, True, "", "\udce9", [], [[]], [None], ["a", ["b"]], {},
    np.zeros(3), np.int64(2), torch.tensor(NAN), torch.zeros(2, 3, dtype=torch.long), Path("nowhere"),
    torch.float32, torch.int64, "meta", object(), {1},
]  # fmt: skip
IDS = torch.arange(8)[None]


def first_score(logits: Tensor) -> Tensor:
    return logits[:, -1, 0]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("models")
    found: dict[str, Any] = {"folder": folder}
    for name, path in write_models(folder).items():
        if path.is_dir():
            found[name] = (cutaway.load(path), None if name == "vit" else cutaway.load_tokenizer(path))
    found["translator"] = (translator(end_ids=tuple(range(400))), byte_level())  # one word, and it ends
    return found


def calls(of: dict[str, Any]) -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    """Each call as it is right, whose arguments are exchanged one by one."""
    gpt2, label, bert, translator = of["gpt2"], of["label"], of["bert"], of["translator"]
    folder = of["folder"]
    return {
        "generate": (cutaway.generate, [*gpt2, "the dog"], {
            "max_tokens": 2, "temperature": 0.0, "top_k": None, "top_p": None, "min_p": None, "repetition_penalty": 1.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": None, "no_repeat_ngram": None,
            "bad_words": (), "min_tokens": 0, "allow": None,
            "rules": (), "stop": (), "beam": 1, "n_best": 1, "groups": 1, "diversity": None, "prune": None, "seed": 0,
            "stream": False, "draft": None}),
        "translate": (cutaway.translate, [*translator, "a dog"], {
            "to": None, "beam": 2, "length_penalty": 1.0, "prune": None, "n_best": 1, "scores": False, "prefix": None,
            "terms": None, "split": True, "longest": 8, "rows": None}),
        "fill": (cutaway.fill, [*bert, ASKED["bert"]], {"k": 1, "as_trained": False, "batch_tokens": 64}),
        "classify": (cutaway.classify, [*label, "a film"], {"cut": None, "as_trained": False, "batch_tokens": 64}),
        "pictures": (cutaway.classify, [of["vit"][0], str(folder / "a.png")], {"mean": None, "std": None, "batch": 1}),
        "embed": (cutaway.embed, [*bert, ["the dog"]], {"pool": "mean", "cut": None, "batch_tokens": 64}),
        "evaluate": (evaluate, [*gpt2, [ASKED["gpt2"]]], {"context": None, "stride": None, "start": True}),
        "bleu": (evaluate, [*translator, ["a dog"], ["ein Hund"]], {"beam": 2, "length_penalty": 1.0, "rows": None}),
        "load": (cutaway.load, [folder / "gpt2"], {"dtype": torch.float32, "device": "cpu"}),
        "load_tokenizer": (cutaway.load_tokenizer, [folder / "gpt2"], {}),
        "build": (cutaway.build, ["bert-tiny"], {
            "seed": 0, "dtype": torch.float32, "device": "cpu", "d_model": 24, "n_heads": 4, "n_layers": 1, "d_ff": 8,
            "vocab_size": 50, "task": "hidden", "dropout": 0.0}),
        "tap_names": (cutaway.tap_names, [gpt2[0]], {}),
        "greedy": (cutaway.decoding.greedy, [gpt2[0], IDS], {"n": 1, "real": None, "end_ids": None}),
        "lens": (inside.logit_lens, [gpt2[0], IDS], {"stream": None, "positions": None, "top": 1, "tokens": ()}),
        "look": (cutaway.inspect, [*gpt2, ASKED["gpt2"]], {"show": ["answer"], "k": 1, "target": None}),
        "sweep": (inside.patch_sweep, [gpt2[0], IDS, IDS + 1, first_score], {"over": "residual", "layers": [0]}),
        "gradient": (inside.gradient_x_input, [gpt2[0], IDS], {"metric": first_score, "at": None}),
        "loss": (cutaway.objectives.next_token_loss, [gpt2[0], IDS], {"documents": None}),
        "means": (inside.mean_activations, [gpt2[0], IDS], {"places": "decoder.0.residual_after", "rows": 2}),
        "train_tokenizer": (cutaway.train_tokenizer, [["a b"]], {
            "kind": "word", "vocab_size": None, "lowercase": False, "min_frequency": 1, "mask": False}),
        "verify": (cutaway.verify, [folder / "vit"], {"seed": 0, "quick": True, "length": None, "device": "cpu"}),
    }  # fmt: skip


CALLS = (
    "generate translate fill classify pictures embed evaluate bleu load load_tokenizer build tap_names greedy lens "
    "look sweep gradient loss means train_tokenizer verify"
).split()


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_end_in_an_error_of_ours(
    loaded: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As outside of tests, where nobody else checks the hints."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    of = calls(loaded)
    assert list(of) == CALLS
    function, args, named = of[name]
    tried: list[tuple[list[Any], dict[str, Any], object]] = []
    for odd in ODD:
        tried += [([*args[:i], odd, *args[i + 1 :]], named, odd) for i in range(len(args))]
        tried += [(args, {**named, key: odd}, odd) for key in named]
    if name.startswith("load"):
        tried.append((["z" * 400], {}, None))
    errors = 0
    for some, more, odd in tried:
        if name == "verify" and isinstance(odd, int | np.int64):
            continue  # each that is right takes seconds
        try:
            function(*some, **more)
        except CutawayError:
            errors += 1
    assert errors > len(tried) / 2


# --- what a function takes where nothing is said ----------------------------------------------------------------------

USUAL: dict[str, dict[str, Any]] = {
    "Ablate": {"how": "zero", "seed": 0},
    "Circuit": {"task": "", "found_with": ""},
    "LogProbability": {"at": -1},
    "LogitDifference": {"at": -1},
    "ablate_sweep": {"how": "zero", "over": "residual", "rows": 256},
    "attention_rollout": {"heads": "mean", "weights": "pattern", "residual": 0.5},
    "build": {"dtype": "torch.float32", "device": "cpu"},
    "deletion_curve": {
        "baseline": "zero",
        "shares": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "n_random": 8,
        "seed": 0,
        "batch_tokens": 8192,
    },
    "classify": {"batch_tokens": 8192, "batch": 256},
    "describe": {"batch": 1, "dtype": "torch.float32"},
    "embed": {"pool": "mean", "batch_tokens": 8192},
    "estimate_sweep": {"over": "residual"},
    "evaluate": {
        "resamples": 1000,
        "seed": 0,
        "level": 0.95,
        "beam": 4,
        "length_penalty": 1.0,
        "max_len": 256,
        "start": True,
        "mean": (0.5,),
        "std": (0.5,),
    },
    "fill": {"k": 5, "batch_tokens": 8192},
    "explain_blank": {"method": "integrated_gradients"},
    "explain_image": {"at": "patches", "method": "integrated_gradients"},
    "explain_label": {"method": "integrated_gradients"},
    "explain_next": {"method": "integrated_gradients"},
    "explain_translation": {"beam": 4, "method": "integrated_gradients"},
    "export": {"to": "hf"},
    "generate": {
        "max_tokens": 100,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "min_tokens": 0,
        "beam": 1,
        "n_best": 1,
        "groups": 1,
        "seed": 0,
    },
    "integrated_gradients": {"baseline": "zero", "within": 0.01, "rule": "gauss_legendre", "batch_tokens": 2048},
    "load": {"dtype": "torch.float32", "device": "cpu"},
    "logit_lens": {"top": 5},
    "inspect": {"name": "", "method": "integrated", "steps": 16, "k": 5},
    "mean_activations": {"rows": 64},
    "pack": {"store": "int8", "tokenizer": True},
    "patch_paths": {"receivers": "logits", "feed_forward": "recomputed", "norms": "recomputed"},
    "speculative": {"k": 4},
    "patch_sweep": {"over": "residual", "rows": 256},
    "to_picture": {"title": ""},
    "trace_beam": {"beam": 4, "length_penalty": 1.0, "groups": 1, "diversity": 0.5},
    "train_tuned_lens": {"rate": 0.001},
    "train_tokenizer": {"kind": "bpe", "tags": "", "min_frequency": 1},
    "translate": {
        "beam": 4,
        "length_penalty": 1.0,
        "n_best": 1,
        "split": True,
        "longest": 200,
        "max_len": 256,
        "growth": (2.0, 20.0),
    },
    "circuit_task": {"how": "mean", "kinds": ("heads",), "rows": 128},
    "verify": {"seed": 0, "device": "cpu"},
    "watch": {"keep": "last"},
    "decompose_residual": {"cross": "heads"},
    "decoding.translate.translations": {
        "beam": 4,
        "length_penalty": 1.0,
        "n_best": 1,
        "split": True,
        "longest": 200,
        "max_len": 256,
        "growth": (2.0, 20.0),
    },
    "before.ladder.compare.compare": {"minutes": 5.0, "start": "\n", "seed": 0},
    "before.chomsky.experiment.run_experiment": {
        "languages": ("local", "parity", "dyck-1", "dyck-2", "mirror", "shuffle-2", "abc", "copy", "crossed"),
        "models": ("none", "sinusoidal", "learned", "rotary", "relative", "lstm"),
        "length": 16,
        "steps": 500,
        "words": 100,
        "pool": 4096,
        "seed": 0,
    },
    "before.chomsky.experiment.train_on_words": {"seconds": float("inf"), "batch": 32, "rate": 0.002, "seed": 0},
    "before.ngrams.smoothing.train_ngrams": {"smoothing": "kneser-ney", "chunk": 8388608},
    "before.ngrams.ngram_of_classes.train_class_ngrams": {"smoothing": "kneser-ney", "most": 10000},
    "inside.circuits.ioi.ioi_prompts": {"seed": 0, "orders": ("ABBA", "BABA")},
    "inside.circuits.ioi_head_scores.ioi_head_scores": {"copying_rows": 16},
    "inside.circuits.find.find_circuit": {"shortlist": 40},
    "inside.circuits.find.grow_circuit": {"by": 5},
    "toys.names.train_names": {"steps": 400, "n_layers": 3, "batch": 64, "rate": 0.003, "seed": 0},
    "toys.reversal.train_reversal": {"steps": 1000, "batch": 64, "seed": 0},
    "pictures.attention_heads.head_maps": {"title": "", "root": True},
    "data.corpus.tokenised_documents": {"split": "file", "wrap": 0.0},
    "data.table_examples.tokenised_columns": {},
    "data.table_files.read_table": {"skip_lines": 0},
    "data.table_files.read_parallel": {"names": ("source", "target")},
    "evaluation.perplexity.surprisal": {"batch": 8},
    "evaluation.bootstrap.interval": {"resamples": 1000, "level": 0.95},
    "inside.word_vectors.WordVectors.nearest": {"k": 10},
    "inside.word_vectors.WordVectors.analogy": {"k": 10, "by": "add"},
    "before.units.read_ids": {"split": "file", "new": True},
    "evaluation.bleu.bleu": {"tokenize": "13a"},
    "tokens.tokenizer_training.train_tokenizer": {"kind": "bpe", "tags": "", "min_frequency": 1},
}


def function_named(name: str) -> Any:
    """One of `cutaway`, of `cutaway.inside` or `cutaway.decoding`, or of a module."""
    if "." not in name:
        return next(getattr(room, name) for room in (cutaway, inside, decoding) if hasattr(room, name))
    found, *names = [import_module("cutaway"), *name.split(".")]
    for number, part in enumerate(names, 1):
        module = "cutaway." + ".".join(names[:number])
        found = import_module(module) if find_spec_of(module) else getattr(found, part)
    return found


def find_spec_of(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def plain(value: object) -> object:
    return str(value) if isinstance(value, torch.dtype) else value


@pytest.mark.parametrize("name", [*USUAL, *(name for name in cutaway.__all__ if name not in USUAL)])
def test_what_a_function_takes_where_nothing_is_said(name: str) -> None:
    """Another number would give another answer to the same call. Nothing, False and what is computed are left out."""
    function = function_named(name)
    if not callable(function):
        return
    given = {p.name: plain(p.default) for p in inspect.signature(function).parameters.values()}
    said = {key: value for key, value in given.items() if isinstance(value, int | float | str | tuple)}
    assert {key: value for key, value in said.items() if value is not False and value != ()} == USUAL.get(name, {})
