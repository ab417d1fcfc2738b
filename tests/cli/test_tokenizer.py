"""`cutaway tokenizer train` and `cutaway tokenizer show`."""

import gzip
import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.varied_texts import varied_texts
from typer.testing import CliRunner

from cutaway import cli
from cutaway.cli.tokenizer.train import _Texts
from cutaway.tokens import Tokenizer, train_tokenizer
from cutaway.tokens.options import Kind
from cutaway.tokens.tokenizer_training import KINDS

BOOK = "It was eight o'clock in the morning, and they went into the pavilion to drink tea.\n\n" * 40


def cutaway(*args: object):
    return CliRunner().invoke(cli.app, ["tokenizer", *map(str, args)], env={"COLUMNS": "100"})


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(BOOK)
    return tmp_path / "book.txt"


def test_a_group_by_itself_shows_its_commands():
    shown = cutaway()
    assert "show   Show the tokens" in shown.output
    assert "train  Train a tokenizer" in shown.output
    wrong = cutaway("tran")
    assert wrong.exit_code == 2
    assert "Did you mean 'train'?" in wrong.stderr


def test_the_kinds_offered_are_the_kinds_there_are():
    assert [kind.value for kind in Kind] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_train_says_what_came_out(kind: str, book: Path, tmp_path: Path):
    size = {"bpe": 300, "wordpiece": 80, "unigram": 50}.get(kind)
    options = [] if size is None else ["--vocab", size]
    result = cutaway("train", book, "--kind", kind, "--out", tmp_path / "t", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    tokenizer = Tokenizer.load(tmp_path / "t")
    assert size in (None, tokenizer.vocab_size)
    special = " ".join(tokenizer.special_ids())
    assert f"{tokenizer.vocab_size:,}, of them {len(tokenizer.special_ids())} special: {special}\n" in result.stdout
    assert "characters a token" in result.stdout
    assert f"line     {BOOK.splitlines()[0]}\n"[:80] in result.stdout
    assert " · " in result.stdout


def test_files_are_read_one_after_the_other_packed_or_not(tmp_path: Path):
    texts = ["".join(f"{text}\n" for text in part) for part in (varied_texts()[:100], varied_texts()[100:])]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(texts[0].encode()))
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(texts[1].encode()))
    files = [tmp_path / "a.txt.gz", tmp_path / "b.txt.xz"]
    options = ["--vocab", 400, "--lowercase", "--tags", "de, en", "--mask", "--min-frequency", 2, "--json"]
    result = cutaway("train", *files, "--out", tmp_path / "t", *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    expected = train_tokenizer(
        texts, kind="bpe", vocab_size=400, lowercase=True, tags=["de", "en"], mask=True, min_frequency=2
    )
    expected.save(tmp_path / "expected")
    assert (tmp_path / "t" / "tokenizer.json").read_bytes() == (tmp_path / "expected" / "tokenizer.json").read_bytes()
    assert found["special"] == {"<pad>": 0, "<sos>": 1, "<eos>": 2, "<mask>": 3, "<2de>": 4, "<2en>": 5}
    assert (found["kind"], found["vocab_size"], found["asked"]) == ("bpe", 400, 400)
    assert found["characters_read"] == sum(len(text.replace("\r\n", "\n")) for text in texts)
    assert found["sample"]["line_tokens"] == expected.encode_full(found["sample"]["line"]).tokens


def test_a_text_that_begins_with_nothing(tmp_path: Path):
    (tmp_path / "late.txt").write_text(" \n" * 30_000 + "word")
    result = cutaway("train", tmp_path / "late.txt", "--kind", "char", "--out", tmp_path / "t")
    assert result.exit_code == 0, result.output


def test_line_ends_are_part_of_the_text(book: Path, tmp_path: Path):
    cutaway("train", book, "--kind", "char", "--out", tmp_path / "t")
    assert "\n" in Tokenizer.load(tmp_path / "t")


def test_fewer_entries_than_asked_for_are_told(book: Path, tmp_path: Path):
    result = cutaway("train", book, "--vocab", 5000, "--out", tmp_path / "t")
    assert result.exit_code == 0
    assert "fewer than the 5,000 requested: the text is too short" in result.stdout
    json_ = json.loads(cutaway("train", book, "--vocab", 5000, "--out", tmp_path / "j", "--json").stdout)
    assert json_["vocab_size"] < json_["asked"] == 5000


def test_a_tokenizer_is_kept_until_force(book: Path, tmp_path: Path):
    cutaway("train", book, "--kind", "char", "--out", tmp_path / "t")
    before = (tmp_path / "t" / "tokenizer.json").read_bytes()
    refused = cutaway("train", book, "--kind", "word", "--out", tmp_path / "t")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "is not empty: name another folder, or replace the tokenizer in it with --force" in refused.stderr
    assert (tmp_path / "t" / "tokenizer.json").read_bytes() == before
    assert cutaway("train", book, "--kind", "word", "--out", tmp_path / "t", "--force").exit_code == 0
    assert (tmp_path / "t" / "tokenizer.json").read_bytes() != before


def test_wrong_input_is_one_line_and_writes_nothing(book: Path, tmp_path: Path):
    (tmp_path / "latin1.txt").write_bytes("ok\nÄrger\n".encode("latin-1"))
    (tmp_path / "empty.txt").touch()
    for args, message in (
        ([tmp_path / "none.txt"], "none.txt cannot be read: No such file"),
        ([tmp_path / "latin1.txt", "--kind", "char"], "latin1.txt, line 2: not UTF-8"),
        ([tmp_path / "empty.txt", "--kind", "word"], "empty.txt is empty"),
        ([book], "--kind 'bpe' needs a vocab_size"),
        ([book, "--vocab", 100], "3 special tokens and 256 bytes make 259"),
        ([book, "--vocab", 300, "--tags", "d e"], "'d e' is not a language tag"),
    ):
        result = cutaway("train", *args, "--out", tmp_path / "t")
        assert (result.exit_code, result.stdout) == (2, ""), message
        assert message in result.stderr
        assert not (tmp_path / "t").exists()
    assert "is a file" in cutaway("train", book, "--kind", "char", "--out", book).stderr


# --- show -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lowest(tmp_path: Path) -> Path:
    text = " ".join(["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3)
    train_tokenizer([text], kind="bpe", vocab_size=3 + 256 + 9).save(tmp_path / "low")
    return tmp_path / "low"


def test_show_draws_tokens_and_merges(lowest: Path):
    result = cutaway("show", lowest, "lowest\n")
    assert result.exit_code == 0, result.output
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert rows[0] == "BPE, 268 entries; 3 tokens"
    assert rows[2] == "token id place text"
    assert rows[3] == f"low {Tokenizer.load(lowest).id('low')} 0–3 low"
    assert rf"Ċ {Tokenizer.load(lowest).id('Ċ')} 6–7 \n" in rows
    assert rows[-5:] == [
        "l o w e s t",
        "0 e + s l o w es t",
        "1 es + t l o w est",
        "2 l + o lo w est",
        "3 lo + w low est",
    ]


def test_show_as_json(lowest: Path):
    found = json.loads(cutaway("show", lowest / "tokenizer.json", "lowest", "--json").stdout)
    assert [token["token"] for token in found["tokens"]] == ["low", "est"]
    assert found["tokens"][1]["offsets"] == [3, 6]
    assert found["trace"]["words"][0]["steps"][1] == {
        "pieces": ["l", "o", "w", "es", "t"],
        "pair": ["e", "s"],
        "rank": 0,
    }


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 100), ("unigram", 50), ("word", None), ("char", None)])
def test_show_every_kind(kind: str, size: int | None, tmp_path: Path):
    train_tokenizer([BOOK], kind=kind, vocab_size=size).save(tmp_path)
    result = cutaway("show", tmp_path, "the lantern [bold]日本[/bold]", "--special")
    assert result.exit_code == 0, result.output
    assert ("[CLS]" in result.stdout) == (kind == "wordpiece")
    assert "日" in result.stdout
    expected = {"wordpiece": "longest entries so far", "unigram": "cuts, the best first"}.get(kind)
    assert expected is None or expected in result.stdout


def test_show_what_is_not_there(tmp_path: Path, book: Path):
    for path, message in (
        (tmp_path / "none", "does not exist"),
        (tmp_path, "has no tokenizer"),
        (book, "has no tokenizer"),
    ):
        result = cutaway("show", path, "text")
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr


def test_show_of_a_folder_needs_no_torch(lowest: Path):
    code = (
        "import sys; from cutaway.cli import app\n"
        f"app(['tokenizer', 'show', {str(lowest)!r}, 'lowest'], standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_samples_are_a_few_stretches_from_all_over_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cutaway.data.text_files.PIECE", 64)
    monkeypatch.setattr("cutaway.data.text_files.WINDOW", 32)
    lines = [f"line {n} of the text" for n in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    texts = _Texts([tmp_path / "a.txt"])
    assert "".join(texts) == "\n".join(lines)
    kept = texts.samples()
    assert len(kept) == 8
    places = [int(re.search(r"line (\d+) of", text)[1]) for text in kept]
    assert len(set(places)) == 8
    assert max(places) > 200 > min(places)
    short = tmp_path / "b.txt"
    short.write_text("only this")
    few = _Texts([short])
    list(few)
    assert few.samples() == ["only this"]
