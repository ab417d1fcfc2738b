"""`cutaway generate`: the same text as from Python, streamed, as JSON, from stdin; and one line for what is wrong."""

import json

import pytest
import torch
from helpers.text_generators import byte_level_once, speaker
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import words
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import save
from cutaway.cli.fill import _show
from cutaway.decoding.fill import Filled, Word
from cutaway.decoding.generate import generate
from cutaway.model.kernels import int8
from cutaway.model.model import DecoderModel
from cutaway.tokens import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("speaker")
    save(speaker(), path, byte_level_once())
    return path


def run(*args: object, stdin: bytes | None = None):
    return CliRunner().invoke(cli.app, ["generate", *map(str, args)], input=stdin)


def said(*args: object, stdin: bytes | None = None) -> str:
    result = run(*args, "--max-tokens", 12, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes.decode()


def failed(*args: object, stdin: bytes | None = None) -> str:
    result = run(*args, stdin=stdin)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_the_same_text_as_from_python(folder):
    model, tokenizer = speaker(), byte_level_once()
    for prompt in ("Hi", "naïve 🙂", ""):
        expected = generate(model, tokenizer, prompt, max_tokens=12)
        assert said(prompt, "--model", folder) == expected + "\n"
        assert said("-", "--model", folder, stdin=f"{prompt}\n".encode()) == expected + "\n"
    drawn = {"temperature": 1.1, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "seed": 4, "repetition_penalty": 1.2}
    options = [word for name, value in drawn.items() for word in (f"--{name.replace('_', '-')}", value)]
    stop = generate(model, tokenizer, "Hi", max_tokens=12, no_repeat_ngram=2, **drawn)[2:3]
    chosen = {**drawn, "no_repeat_ngram": 2, "stop": ["☃", stop]}
    found = said("Hi", "--model", folder, *options, "--no-repeat-ngram", 2, "--stop", "☃", "--stop", stop)
    assert found == generate(model, tokenizer, "Hi", max_tokens=12, **chosen) + "\n"


NEW = ("min_tokens", "presence_penalty", "frequency_penalty", "bad_words", "groups", "diversity", "stop")


@pytest.mark.parametrize(
    "chosen",
    [
        {"min_tokens": 12, "temperature": 2.0, "seed": 31},  # whose second token would be the end
        {"presence_penalty": 5.0},
        {"frequency_penalty": 2.0},
        {"bad_words": ["☃", "aaa", "ab"], "allow": "[ab ]*"},
        {"beam": 4, "n_best": 4, "groups": 2, "diversity": 3.0},
        {"beam": 4, "n_best": 4, "groups": 4},
        {"beam": 4, "nbest": 2, "allow": "[a-f]*", "stop": ["e", "f"]},
    ],
)
def test_every_option_of_the_call_is_one_of_the_command(folder, chosen):
    model, tokenizer = speaker(), byte_level_once()
    options: list[object] = []
    for name, value in chosen.items():
        for one in value if isinstance(value, list) else [value]:
            options += [f"--{name.replace('_', '-')}", one]
    lines = said("Hi", "--model", folder, *options)
    chosen = {"n_best" if name == "nbest" else name: value for name, value in chosen.items()}
    expected = generate(model, tokenizer, "Hi", max_tokens=12, **chosen)
    if isinstance(expected, str):
        assert lines == expected + "\n"
    else:
        assert [line.split("\t", 1)[1] for line in lines.removesuffix("\n").split("\n")] == expected
    plain = {name: value for name, value in chosen.items() if name not in NEW}
    assert expected != generate(model, tokenizer, "Hi", max_tokens=12, **plain), "it has to matter"


def test_a_stop_may_be_written_with_escapes(folder):
    model, tokenizer = speaker(), byte_level_once()
    chosen = {"allow": r"[\n\t\\]{9,}", "temperature": 3.0, "seed": 3}
    options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    free = generate(model, tokenizer, "Hi", max_tokens=12, **chosen)
    for char, written in (("\n", r"\n"), ("\t", r"\t"), ("\\", r"\\")):
        assert char in free
        assert said("Hi", "--model", folder, *options, "--stop", written) == free[: free.index(char)] + "\n"


def test_a_model_that_is_full_says_so(folder):
    for more in ([], ["--json"], ["--draft", folder], ["--beam", 2, "--n-best", 2]):
        ran = run("Hi", "--model", folder, "--max-tokens", 1000, *more)
        assert ran.exit_code == 0
        assert ran.stderr == "the model is full (max_len=96) before --max-tokens were generated\n"
        assert "--json" not in more or json.loads(ran.stdout_bytes)["texts"][0]["ended"] == "full"
    assert run("Hi", "--model", folder, "--max-tokens", 5).stderr == ""


def test_a_terminal_is_sent_no_control_characters(folder, monkeypatch, capfd):
    model, tokenizer = speaker(), byte_level_once()
    chosen = {"allow": r"[\x1b\x0f\r\n]{9,}", "temperature": 3.0, "seed": 3}
    plain = generate(model, tokenizer, "\x1bHi", max_tokens=12, **chosen)
    assert "\x1b" in plain
    options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    assert said("\x1bHi", "--model", folder, *options) == plain + "\n"
    for draft in ([], ["--draft", folder]):
        monkeypatch.setattr(
            "sys.argv",
            [
                "cutaway",
                "generate",
                "\x1bHi",
                "--model",
                str(folder),
                "--max-tokens",
                "12",
                *map(str, draft or options),
            ],
        )
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        with pytest.raises(SystemExit):
            cli.main()
        shown = capfd.readouterr().out
        assert shown.startswith("\x1b[1m\\x1bHi\x1b[0m")
        rest = shown.removeprefix("\x1b[1m\\x1bHi\x1b[0m")
        assert not set(rest) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
        if not draft:
            assert rest == plain.replace("\x1b", r"\x1b").replace("\x0f", r"\x0f").replace("\r", r"\x0d") + "\n"


def test_nor_is_it_by_fill(monkeypatch, capsys):
    filled = Filled("a\x1b[31m b", [[Word("\x0f", 1, 0.5)]], "a\x1b[31m \x0f")
    for terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda terminal=terminal: terminal)
        _show(filled)
        shown = capsys.readouterr().out
        assert r"a\x1b[31m \x0f" in shown  # a table is for people, also behind | head
        assert "a\x1b" not in shown


def test_json(folder):
    model, tokenizer = speaker(), byte_level_once()
    found = json.loads(said("Hi", "--model", folder, "--beam", 3, "--n-best", 2, "--json"))
    expected = generate(model, tokenizer, "Hi", max_tokens=12, beam=3, n_best=2)
    assert [one["text"] for one in found["texts"]] == expected
    assert (found["prompt"], found["precision"], found["seed"]) == ("Hi", "fp32", 0)
    assert all(one["ended"] in ("end", "limit") and one["tokens"] == len(one["ids"]) for one in found["texts"])
    lines = said("Hi", "--model", folder, "--beam", 3, "--n-best", 2)
    assert lines == "".join(f"{one['score']:.3f}\t{one['text']}\n" for one in found["texts"])
    stopped = json.loads(said("Hi", "--model", folder, "--stop", expected[0][:1], "--beam", 3, "--json"))["texts"][0]
    assert (stopped["text"], stopped["ended"]) == ("", "stop")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_precision(folder, precision):
    found = json.loads(said("Hi", "--model", folder, "--precision", precision, "--json"))
    assert found["precision"] == precision
    assert found["texts"][0]["tokens"] > 0


def test_a_model_that_is_stored_in_8_bits_runs_in_8_bits(tmp_path, monkeypatch):
    save(speaker(), tmp_path, byte_level_once(), store="int8")
    for asked, expected in ((), "int8"), (("--precision", "fp32"), "fp32"), (("--precision", "auto"), "int8"):
        assert json.loads(said("Hi", "--model", tmp_path, *asked, "--json"))["precision"] == expected
    monkeypatch.setattr(int8, "has_kernel", lambda: False)
    assert json.loads(said("Hi", "--model", tmp_path, "--json"))["precision"] == "fp32"


def test_a_draft_changes_no_word(folder, tmp_path):
    save(speaker(seed=1), tmp_path / "draft", byte_level_once())
    for prompt in ("Hi", "naïve 🙂", "I ate an apple"):
        for draft in (tmp_path / "draft", folder):
            assert said(prompt, "--model", folder, "--draft", draft) == said(prompt, "--model", folder)
    alone = json.loads(said("Hi", "--model", folder, "--json"))["texts"][0]
    found = json.loads(said("Hi", "--model", folder, "--draft", folder, "--json"))["texts"][0]
    assert all(found[name] == alone[name] for name in ("text", "ids", "tokens", "ended"))
    assert found["accepted"] == found["proposed"] > found["rounds"]  # it guesses itself
    stop = alone["text"][2:4]
    assert said("Hi", "--model", folder, "--draft", folder, "--stop", stop) == said(
        "Hi", "--model", folder, "--stop", stop
    )


def test_a_draft_that_cannot_be_followed_is_refused(folder, tmp_path):
    def refused(*args):
        return failed("Hi", "--model", folder, *args)

    assert "--temperature 0.5 does not work with a draft" in refused("--draft", folder, "--temperature", 0.5)
    assert "--beam 3 does not work with a draft" in refused("--draft", folder, "--beam", 3)
    assert "--repetition-penalty 1.5 does not work with a draft" in refused(
        "--draft", folder, "--repetition-penalty", 1.5
    )
    save(speaker(vocab_size=500), tmp_path / "wide", byte_level_once())
    assert "vocab_size=500, the model 400" in refused("--draft", tmp_path / "wide")
    save(speaker(), tmp_path / "other", Tokenizer(words()))
    assert "a draft needs the same tokenizer" in refused("--draft", tmp_path / "other")
    save(tiny("bert", vocab_size=400, dtype=torch.float32), tmp_path / "bert", byte_level_once())
    assert "a draft is a language model too" in refused("--draft", tmp_path / "bert")


def test_too_much_for_the_memory_is_one_line_too(folder, monkeypatch):
    assert "--beam 500 is more than this model's vocabulary of 400" in failed("Hi", "--model", folder, "--beam", 500)
    assert "--beam 5,000,000 must be at least 1 and at most 1,024" in failed("Hi", "--model", folder, "--beam", 5000000)

    def full(*args, **options):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(DecoderModel, "new_cache", full)
    for more in ([], ["--json"], ["--draft", folder]):
        asked = failed("Hi", "--model", folder, "--max-tokens", 12000, *more)
        assert "not enough memory for --max-tokens 12,000: use smaller numbers" in asked
    asked = failed("Hi", "--model", folder, "--beam", 300)
    assert "not enough memory for --max-tokens 100 and --beam 300: use smaller numbers" in asked


def test_errors_are_one_line_that_names_the_thing(folder, tmp_path):
    assert "--temperature nan" in failed("Hi", "--model", folder, "--temperature", "nan")
    assert "--top-p 0.0" in failed("Hi", "--model", folder, "--top-p", 0)
    assert "--n-best 3 needs --beam 3," in failed("Hi", "--model", folder, "--n-best", 3)
    assert "--allow 'beam=4^x' uses ^" in failed("Hi", "--model", folder, "--allow", "beam=4^x")
    assert "but --max-tokens 5: raise it" in failed("Hi", "--model", folder, "--allow", "[a-c]{90}", "--max-tokens", 5)
    assert "--stop ''" in failed("Hi", "--model", folder, "--stop", "")
    assert "tokens; this model reads at most max_len=96" in failed("-", "--model", folder, stdin=b"x" * 2**20)
    assert "no UTF-8 at byte 1" in failed("-", "--model", folder, stdin=b"a\xff")
    assert "does not exist" in failed("Hi", "--model", tmp_path / "nobody")
    save(speaker(), tmp_path / "mute")
    assert "no tokenizer" in failed("Hi", "--model", tmp_path / "mute")
    save(tiny("bert", vocab_size=400, dtype=torch.float32), tmp_path / "bert", byte_level_once())
    assert "task='masked_language_model'" in failed("Hi", "--model", tmp_path / "bert")
