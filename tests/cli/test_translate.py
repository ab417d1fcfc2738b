"""`cutaway translate`: texts, pipes and files."""

import json
from importlib import import_module

import pytest
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level
from helpers.translators import quick
from typer.testing import CliRunner

from cutaway import cli, translate
from cutaway.checkpoints import save
from cutaway.cli.translate import _show
from cutaway.decoding.rules.terms import contains
from cutaway.pictures.terminal_tables import show_alignment
from cutaway.pictures.terminal_text import visible_controls

module = import_module("cutaway.decoding.translate")  # `cutaway.decoding.translate` is the function, too
LINES = ["I ate an apple. It was good!", "", "  Hi ", "naïve café"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "en-de"
    save(quick(), path, byte_level())
    return path


def run(folder, *args, stdin=None, code=0):
    result = CliRunner().invoke(cli.app, ["translate", "--model", str(folder), *map(str, args)], input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_texts_pipes_and_files_say_the_same(folder, tmp_path):
    expected = translate(quick(), byte_level(), LINES, beam=2)
    assert run(folder, *LINES, "--beam", 2).stdout.split("\n")[:-1] == expected
    text = "".join(line + "\n" for line in LINES)
    assert run(folder, "--beam", 2, stdin=text).stdout.split("\n")[:-1] == expected
    assert run(folder, "-", "--beam", 2, stdin=text).stdout.split("\n")[:-1] == expected
    (tmp_path / "in").write_text(text)
    run(folder, "--beam", 2, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text().split("\n")[:-1] == expected
    assert run(folder, "--beam", 2, "--input", tmp_path / "in").stdout.split("\n")[:-1] == expected


def test_an_output_is_gone_on_with(folder, tmp_path):
    (tmp_path / "in").write_text("Hi\nYes\nNo\n")
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    run(folder, *files)
    whole = (tmp_path / "out").read_text()
    refused = run(folder, *files, code=2)
    assert "continue it with --resume" in refused.stderr
    run(folder, *files, "--resume")
    assert (tmp_path / "out").read_text() == whole


def test_ctrl_c_says_what_is_written(folder, tmp_path, monkeypatch):
    whole, asked = module.translations, 0

    def interrupted(*args, **more):
        nonlocal asked
        asked += 1
        if asked == 2:
            raise KeyboardInterrupt
        return whole(*args, **more)

    monkeypatch.setattr(module, "translations", interrupted)
    (tmp_path / "in").write_text("Hi\n" * 3000)
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--beam", 1]
    said = run(folder, *files, code=130).stderr
    lines = (tmp_path / "out").read_text().count("\n")
    assert 0 < lines < 3000
    assert f"{lines:,} lines written" in said
    assert "--resume continues" in said


def test_a_term_is_given_once(folder):
    refused = run(folder, "a dog", "--term", "dog=fox", "--term", "dog = Hund", code=2)
    assert "'dog' is given twice, as 'fox' and as 'Hund'" in refused.stderr
    run(folder, "a dog", "--term", "dog=fox", "--term", "dog=fox")


def test_a_language_that_cannot_be_chosen_is_refused(folder):
    assert "--to 'fr': this model has no language tags" in run(folder, "a dog", "--to", "fr", code=2).stderr


def test_a_finished_output_is_that_of_its_input_options_terms_and_model(tmp_path):
    folder = tmp_path / "model"
    save(quick(), folder, byte_level())
    (tmp_path / "in").write_text("Hi\nYes\n")
    (tmp_path / "terms").write_text("".join(f"dog{n}\tfox{n}\n" for n in range(2000)))
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--resume"]
    run(folder, *files, "--terms", tmp_path / "terms")
    assert (tmp_path / ".out.progress").stat().st_size < 1000  # of a glossary a fingerprint is enough
    whole = (tmp_path / "out").read_text()
    run(folder, *files, "--terms", tmp_path / "terms")
    assert "terms was" in run(folder, *files, code=2).stderr
    files += ["--terms", tmp_path / "terms"]
    assert "beam was 4 and is 2" in run(folder, *files, "--beam", 2, code=2).stderr
    (tmp_path / "in").write_text("Hi\nNo\n")
    assert "its first 2 lines differ" in run(folder, *files, code=2).stderr
    (tmp_path / "in").write_text("Hi\nYes\n")
    save(quick(seed=5), folder, byte_level())
    assert "files was" in run(folder, *files, code=2).stderr
    assert (tmp_path / "out").read_text() == whole


def test_columns_and_json(folder):
    found = translate(quick(), byte_level(), LINES[0], n_best=2, align=True)
    line = run(folder, LINES[0], "--nbest", 2, "--scores", "--align").stdout.rstrip("\n").split("\t")
    first, second = found.n_best
    assert line == [first.text, f"{first.score:.4f}", second.text, f"{second.score:.4f}", found.alignment.pharaoh()]
    said = [json.loads(line) for line in run(folder, *LINES, "--align", "--nbest", 2, "--json").stdout.splitlines()]
    assert len(said) == 4
    assert said[0]["text"] == found.text
    assert said[0]["score"] == pytest.approx(first.score)
    assert said[0]["alignment"] == found.alignment.pharaoh()
    assert said[1]["n_best"] == [{"text": "", "score": 0.0}]  # fewer, and yet each line has the same keys
    assert {tuple(one) for one in said} == {("text", "score", "n_best", "alignment", "links")}
    lines = run(folder, *LINES, "--nbest", 2, "--scores", "--align").stdout.split("\n")[:-1]
    assert {line.count("\t") for line in lines} == {4}
    assert run(folder, "", "--json").stdout == '{"text": "", "score": 0.0}\n'


def test_in_a_terminal_the_alignment_is_a_picture(folder, capsys):
    found = translate(quick(), byte_level(), LINES[0], align=True)
    _show(found, True, True)
    shown = capsys.readouterr().out
    assert visible_controls(found.text) in shown
    for sentence in found.sentences:
        head, *rows = show_alignment(sentence.alignment, 80).plain.split("\n")
        assert len(rows) == len(sentence.alignment.target_words)
        assert all(visible_controls(row.rstrip()) in shown for row in (head, *rows))


def test_prefix_and_precision(folder):
    assert run(folder, "Hi", "--prefix", "the quick").stdout.startswith("the quick")
    for precision in ("fp32", "bf16", "int8"):
        assert run(folder, "Hi", "--precision", precision).stdout.count("\n") == 1


def test_terms(folder, tmp_path):
    (tmp_path / "terms.tsv").write_text("apple\tfox\nate\tquick\n")
    said = run(folder, "I ate an apple", "--term", "apple=jumps", "--terms", tmp_path / "terms.tsv", "--beam", 2).stdout
    assert contains(said, "jumps")  # what is said here counts more than what is written there
    assert contains(said, "quick")
    assert run(folder, "Hi", "--term", "apple=fox").stdout == run(folder, "Hi").stdout
    (tmp_path / "in").write_text("Hi\n")
    files = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    run(folder, *files, "--term", "apple=fox")
    assert (tmp_path / "out").read_text() == run(folder, "Hi").stdout


@pytest.mark.parametrize(
    ("text", "same"), [("", True), ("  ", True), ("\x01\x1b[31m", False), ("🙂👩‍👩‍👧", False), ("שלום. مرحبا", False)]
)
def test_any_text_is_answered(folder, text, same):
    said = run(folder, stdin=text + "\n").stdout
    assert said.endswith("\n")
    assert (said == text + "\n") is same


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["Hi", "--term", "apple"], "write WORD=TRANSLATION"),
        (["Hi", "--term", "apple="], "empty side"),
        (["apple", "--term", "apple=" + "x" * 70], "leave some out"),
        (["Hi", "--terms", "/nowhere/terms.tsv"], "/nowhere/terms.tsv"),
        (["Hi", "--prefix", "fox " * 100], "leaves no room"),
        (["Hi", "--prefix", "fox <eos>"], "no tokens for '<eos>'"),
        (["--input", __file__, "--output", "/"], "/ is a folder: give --output a file"),
        (["Hi", "--output", "x"], "either texts, or --input"),
        (["--resume"], "with --output"),
        (["Hi", "--nbest", 9], "needs --beam 9 or more"),
        (["--input", __file__, "--output", "x", "--length-penalty", "nan"], "nan is not a number"),
        (["--input", "/nowhere/a.txt"], "cannot be read"),
        (["--input", __file__, "--output", "/nowhere/a.txt"], "cannot be written"),
    ],
)
def test_wrong_wishes_are_refused(folder, args, said):
    assert said in run(folder, *args, code=2).stderr


def test_a_model_that_does_not_translate_is_refused(tmp_path):
    save(tiny("gpt2", vocab_size=400), tmp_path / "gpt", byte_level())
    assert "does not translate" in run(tmp_path / "gpt", "Hi", code=2).stderr


def test_a_file_s_name_among_the_texts_is_pointed_out(folder, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("cat")
    assert f"hint: {file} is a file" in run(folder, file, "--beam", 1).stderr
    assert run(folder, "cat", "x" * 300, "--beam", 1).stderr == ""
