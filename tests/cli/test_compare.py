"""`cutaway compare`: all rungs on a text of ten words; what is no text is named."""

from pathlib import Path

import pytest
from helpers.inside_commands import data, failed, said

from cutaway.pictures import Lines, read_picture

TEN = "the quick brown fox jumps over the lazy dog today"
QUICK = ["--steps", 2, "--set", "model.d_model=16", "--set", "train.tokens=32", "--set", "train.threads=1"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "ten.txt"
    path.write_text(TEN)
    return path


def test_ten_words_give_a_table_a_picture_and_models(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = said("compare", text, *QUICK, "--out", out)
    assert "too little to go by" in shown
    assert "transformer" in shown
    assert shown.count("2 of 2 steps") == 2  # what a network had for its number
    assert all(len(line) <= 80 for line in shown.splitlines() if str(tmp_path) not in line)
    assert (out / "table.md").read_text().count("\n| order-") == 6
    assert isinstance(read_picture(out / "compare.svg"), Lines)
    assert "5-gram model" in said("ngram", out / "models" / "order-4", "--max-tokens", 3)
    assert said("generate", "the", "--model", out / "models" / "lstm", "--max-tokens", 3)
    for folder, instead in (("models/order-2", "an n-gram model: cutaway ngram"), ("", "its models are in")):
        assert instead in failed("generate", "the", "--model", out / folder)
    again = data("compare", text, *QUICK, "--out", out, "--resume")
    assert [rung["name"] for rung in again["rungs"]][-3:] == ["classes", "lstm", "transformer"]
    assert again["scored_on"] == {"bytes": 5, "tokens": 5}
    bits = {rung["name"]: rung["bits_per_byte"] for rung in again["rungs"] if rung["name"].startswith("order-")}
    assert min(bits.values()) < max(bits.values())
    (titles,) = [line.split() for line in shown.splitlines() if line.startswith("bits per byte by what is told")]
    assert titles[-4:] == [min(bits, key=bits.__getitem__), "classes", "lstm", "transformer"]
    assert "continue it with --resume" in failed("compare", text, "--out", out)


def test_what_is_no_text_is_refused_by_name(text: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(b"a\0b " * 100)
    assert "empty.txt is empty" in failed("compare", tmp_path / "empty.txt")
    assert "binary.txt is binary" in failed("compare", tmp_path / "binary.txt")
    assert "missing.txt" in failed("compare", tmp_path / "missing.txt")
    assert "holds no comparison" in failed("compare", text, "--out", tmp_path / "new", "--resume")
    assert "has other files" in failed("compare", text, "--out", tmp_path)
    assert "name it with --out" in failed("compare", text, "--resume")
    assert "cannot be written: Not a directory" in failed("compare", text, "--out", text / "below" / "out")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 9)
    assert "picture.png is binary" in failed("compare", tmp_path / "picture.png")


def test_a_change_that_no_recipe_knows_is_refused_before_anything_is_counted(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "unknown key 'foo'" in failed("compare", text, *QUICK, "--set", "foo=1", "--out", out)
    assert not (out / "compare.json").exists()
    assert not (out / "models").exists()
    assert "transformer" in said("compare", text, *QUICK, "--out", out)  # the same folder, put right


def test_what_does_not_fit_into_memory_is_one_line(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.before.ladder import compare as study

    def greedy(*given: object, **more: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(study, "Comparison", greedy)
    assert "not enough memory" in failed("compare", text, *QUICK)
