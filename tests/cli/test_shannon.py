"""`cutaway shannon`: curves of a text, and the game for a person, left and taken up again."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers.inside_commands import data, failed, pieces, said
from helpers.tiny_models import tiny
from typer.testing import CliRunner

from cutaway import cli
from cutaway.checkpoints import save
from cutaway.pictures import Lines, read_picture

TEXT = "The old man's dog ran after the cat, and the cat ran up the tall tree.\n" * 12
ORDER = " etaoinshrdlcumwfgypbvkxjqz"


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where shannon.json would go
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def test_a_text_of_ten_words_works_and_is_said_to_be_little(text: Path) -> None:
    text.write_text("the cat sat on the mat and the dog ran")
    shown = said("shannon", text)
    assert "38 letters of 27 kinds; guessed are some of the last 3" in shown
    assert "Left out, for the text is too short: 64, 99 letters known." in shown
    assert "As few as 3 letters for a point" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_curves_of_counts_and_n_grams(text: Path) -> None:
    found = data("shannon", text, "--known", "0,3", "--samples", 20)
    counted, ngram, reader = found["players"]
    assert (counted["name"], ngram["name"], reader["name"]) == ("counted", "n-gram", "reader 1951")
    assert reader["upper"] == [4.03, 2.6]
    assert reader["letters"] == [0, 100]  # for one letter alone there are tables: nobody needs a hundred guesses
    assert ngram["letters"] == [20, 20]
    assert ngram["bits"][1] < 0.7 < ngram["bits"][0]
    for lower, upper in zip(ngram["lower"], ngram["upper"], strict=True):
        assert lower <= upper
    other = data("shannon", text, "--known", "0,3", "--samples", 20, "--train", text)
    assert found["guessed_from"] == found["length"] - found["length"] // 10
    assert other["guessed_from"] == 0  # n-grams learn elsewhere, so all of it can be guessed
    whole = data("shannon", text, "--letters", "all", "--known", "2", "--samples", 20)
    assert whole["letters"] == len(set(TEXT))
    assert len(whole["players"]) == 2  # the reader of 1951 had 27 letters


def test_a_model_plays_beside_them_and_all_are_drawn(text: Path, tmp_path: Path) -> None:
    save(tiny("gpt2", vocab_size=280, max_len=64, dtype=torch.float32), tmp_path / "lm", pieces())
    asked = ["--known", "1,4", "--samples", "5", "--model", tmp_path / "lm", "--out", tmp_path / "a.svg"]
    found = data("shannon", text, *asked)
    assert found["players"][2]["name"] == "lm"
    assert found["players"][2]["letters"] == [5, 5]
    picture = read_picture(tmp_path / "a.svg")
    assert isinstance(picture, Lines)
    assert list(picture.lines) == ["counted", "n-gram", "lm", "reader 1951, middle"]  # nobody measured the middle
    assert "bands: from the lower to the upper bound; middle: halfway between them, not measured" in picture.y_name
    assert picture.x.tolist() == [2, 5]
    assert picture.bands["lm"][0] == pytest.approx(found["players"][2]["lower"], abs=1e-3)


def play(letters: str | bytes, *args: object):
    return CliRunner().invoke(cli.app, ["shannon", *map(str, args), "--answers", "-"], input=letters)


def test_a_game_is_left_and_taken_up_again(text: Path, tmp_path: Path) -> None:
    asked = ["--known", "0,5", "--samples", "2"]
    straight = play(ORDER * 4, text, *asked, "--game", tmp_path / "straight.json")
    assert straight.exit_code == 0, straight.output
    assert straight.stdout.count("✓") == 4
    assert "4 of 4 letters" in straight.stdout
    for at in range(0, 4 * len(ORDER), 9):  # nine letters, then the terminal is closed
        ran = play((4 * ORDER)[at : at + 9].upper(), text, *asked)
        assert ran.exit_code == 0, ran.output
        if "4 of 4" in ran.stdout:
            break
    guesses = [json.loads((tmp_path / name).read_text())["guesses"] for name in ("straight.json", "shannon.json")]
    assert len(guesses[0]) == 4
    found = data("shannon", text, "--game", "shannon.json")  # the terms are those of the game
    assert found["known"] == [0, 5]
    assert found["players"][0]["name"] == "you"
    assert found["players"][0]["guesses"] == [[len(guesses[1][0]), len(guesses[1][2])],
                                              [len(guesses[1][1]), len(guesses[1][3])]]  # fmt: skip


def test_what_cannot_be(text: Path, tmp_path: Path) -> None:
    assert "stdin is no terminal: play in one, or give the letters with --answers" in failed("shannon", text, "--play")
    assert "does not exist: play first" in failed("shannon", text, "--game", "none.json")
    assert "cannot be read" in failed("shannon", text, "--answers", "none.txt")
    assert "no list of numbers" in failed("shannon", text, "--known", "a")
    text.write_text("the dog barks and the cat sits " * 40)
    assert "nobody has guessed with 200, 300 letters known: give a --model" in failed(
        "shannon", text, "--known", "200,300", "--samples", "3"
    )
    assert play("e", text, "--known", "1").exit_code == 0
    assert "another known, 1, not 2" in failed("shannon", text, "--known", "2", "--game", "shannon.json")
    text.write_text("another text by far")
    assert "another text" in failed("shannon", text, "--game", "shannon.json")
    for name, content in {"empty": b"", "white": b" \n ", "binary": b"\xff\xfe\x00\x01"}.items():
        (tmp_path / name).write_bytes(content)
        assert name in failed("shannon", tmp_path / name)
    (tmp_path / "zeros").write_bytes(b"the cat sat\0on the mat")
    assert "zeros is binary" in failed("shannon", tmp_path / "zeros")
    assert "zeros is binary" in failed("shannon", text, "--train", tmp_path / "zeros")
    for few in ("123 !!", "これは日本語です", "a"):
        text.write_text(few)
        assert re.search(r"text\.txt: fewer than two letters a–z.*--letters all", failed("shannon", text))
    text.write_text("これは日本語です")
    assert "8 letters of 8 kinds" in said("shannon", text, "--letters", "all")
    assert re.search(
        r"text\.txt: --known 99: the text has 8", failed("shannon", text, "--letters", "all", "--known", 99)
    )
    text.write_text(TEXT)
    assert "nothing to draw" in play("", text, "--game", "new.json", "--out", "a.svg").output


def test_answers_and_games_are_looked_at_before_the_game_begins(text: Path, tmp_path: Path) -> None:
    for name, content in {"empty": b"", "digits": b"12\n"}.items():
        (tmp_path / name).write_bytes(content)
        assert f"--answers {name} has none of the letters" in failed("shannon", text, "--answers", name)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "--answers a.png is not text in UTF-8" in failed("shannon", text, "--answers", "a.png")
    assert "stdin is not text in UTF-8" in play(b"\x89PNG", text).stderr
    ran = play("e", text, "--game", "none/x.json")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "--game none/x.json: there is no folder none" in ran.stderr
    assert not list(tmp_path.glob("*.json"))


def test_a_finished_game_is_said_to_be_finished(text: Path) -> None:
    asked = [text, "--known", "0", "--samples", "2"]
    assert "finished" not in play(ORDER * 2, *asked).stdout
    again = play("", *asked)
    assert again.exit_code == 0, again.output
    assert again.stdout.startswith("shannon.json: finished, 2 of 2 letters")
    assert "going on" not in again.stdout


def test_one_letter_is_no_letters_and_one_height_is_no_picture(text: Path) -> None:
    text.write_text("a" * 12)
    shown = said("shannon", text, "--letters", "all", "--known", "0,1")
    assert "12 letters of 1 kind; guessed is the last\n" in shown
    assert "As few as 1 letter for a point" in shown
    assert "▁" not in shown  # all is 0 bits


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("known", 3),
        ("known", ["a"]),
        ("known", [None]),
        ("samples", "4"),
        ("samples", 0),
        ("seed", -1),
        ("first", None),
    ],
)
def test_a_damaged_game_is_refused(text: Path, name: str, wrong: object) -> None:
    assert play("e", text, "--known", "1").exit_code == 0
    saved = json.loads(Path("shannon.json").read_text())
    Path("shannon.json").write_text(json.dumps(saved | {name: wrong}))
    assert "shannon.json is damaged" in failed("shannon", text, "--game", "shannon.json")


def at_a_terminal(text: Path, keys: str, *args: str, interrupt: bool = False) -> tuple[int, str]:
    """Exit status and what was said; Ctrl-C comes behind the first guess that is kept."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cutaway", "shannon", str(text), "--play", *args]
    heard = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # who runs tests in the background may have it ignored
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, preexec_fn=heard) as ran:
        try:
            assert ran.stdout is not None
            seen = ran.stdout.readline()  # from here on keys are heard one by one
            os.write(ours, keys.encode())
            while interrupt and not Path("shannon.json").exists():
                time.sleep(0.05)
            if interrupt:
                ran.send_signal(signal.SIGINT)
            seen += ran.communicate(timeout=60)[0]
        finally:
            ran.kill()
    os.close(ours)
    os.close(theirs)
    return ran.returncode, seen.decode()


def test_keys_of_a_terminal(text: Path) -> None:
    code, seen = at_a_terminal(text, ORDER + "\x1b", "--known", "3", "--samples", "2")
    assert code == 0, seen
    assert len(json.loads(Path("shannon.json").read_text())["guesses"]) == seen.count("✓") == 2


def test_ctrl_c_says_where_the_game_is_kept(text: Path) -> None:
    code, seen = at_a_terminal(text, "z", "--known", "3", "--samples", "2", interrupt=True)
    assert code == 130, seen
    assert seen.splitlines()[-1] == "0 of 2 letters, saved in shannon.json"
    assert json.loads(Path("shannon.json").read_text())["open"] == "z"


def test_what_nobody_began_is_not_kept(text: Path) -> None:
    code, seen = at_a_terminal(text, "\x1b", "--known", "3", "--samples", "2")
    assert code == 0, seen
    assert "0 of 2 letters\n" in seen
    assert not Path("shannon.json").exists()
