"""The README's Python runs, block after block, as a reader would type it."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import cutaway
from cutaway import bundled
from cutaway.cli import app
from cutaway.training.recipe_file import recipe_from

README = Path(__file__).parents[2] / "README.md"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line, source) of each ```python block."""
    return [
        (text[: m.start()].count("\n") + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    ]


def commands(text: str) -> list[list[str]]:
    """The words of each line of each ```sh block, without its comment."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


def test_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((line, source),) = python_blocks(README.read_text())
    # Blank lines in front, so that a traceback shows the README's own line numbers.
    exec(compile("\n" * line + source, str(README), "exec"), {"__name__": "__main__"})


def test_readme_commands_run_from_top_to_bottom(tmp_path, monkeypatch):
    """In a folder that looks like a fresh clone; trainings take two steps."""
    for name in ("docs", "recipes", "src"):
        (tmp_path / name).symlink_to(README.parent / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    first, activate, *others = commands(README.read_text())
    assert (first, activate) == (["make", "demo"], [".", ".venv/bin/activate"])
    assert len(others) > 12
    for program, *words in others:
        assert program == "cutaway"
        few = ["--set", "train.steps=2", "--set", "schedule.warmup=1"] if words[0] == "train" else []
        ran = CliRunner().invoke(app, [*words, *few])
        assert ran.exit_code == 0, (words, ran.output)


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 120


def test_the_guide_to_training_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = README.parent / "docs" / "training.md"
    blocks = python_blocks(guide.read_text())
    assert len(blocks) == 1
    for line, source in blocks:
        exec(compile("\n" * line + source, str(guide), "exec"), {"__name__": "__main__"})


def test_the_guide_to_the_inside_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = README.parent / "docs" / "inside" / "README.md"
    ((line, source),) = python_blocks(guide.read_text())
    exec(compile("\n" * line + source, str(guide), "exec"), {"__name__": "__main__"})
    assert Path("effects.html").stat().st_size > 1000


def test_the_recipes_of_the_guide_to_training_run(tmp_path, monkeypatch):
    """One after another: the second starts from what the first one made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    Path("novel.txt").write_text("".join(f"the dog number {i} barks at a man .\n" for i in range(300)))
    Path("reviews.csv").write_text("review,stars\n" + "a good dog,5\na bad dog,1\n" * 20)
    Path("pairs.tsv").write_text("".join(f"a dog {i}\tein Hund {i}\tnone\n" for i in range(40)))
    guide = (README.parent / "docs" / "training.md").read_text()
    blocks = re.findall(r"^```toml\n(.*?)^```$", guide, re.M | re.S)
    assert len(blocks) == 4
    recipe_from(tomllib.loads(blocks[0]))
    for block, out in zip(blocks[1:], ("filler", "classifier", "translator"), strict=True):
        Path(f"{out}.toml").write_text(block)
        ran = CliRunner().invoke(app, ["train", f"{out}.toml", "--out", out, "--set", "train.steps=2"])
        assert ran.exit_code == 0, ran.output


def test_the_guide_to_decoding_runs(tmp_path, monkeypatch):
    """Its Python, and then its commands. The reader brings two models, two texts and a picture."""
    monkeypatch.chdir(tmp_path)
    tokenizer = cutaway.load_tokenizer("books")
    same = {"vocab_size": tokenizer.vocab_size, "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1}
    ends = {name: cutaway.load("books").config.to_dict()[name] for name in ("start_id", "end_ids", "max_len")}
    cutaway.save(cutaway.build("gpt2", seed=1, **same, **ends), "draft", tokenizer)
    critic = cutaway.build("bert-tiny", seed=0, task="classify", n_classes=2, labels=("bad", "good"), vocab_size=12000)
    cutaway.save(critic, "reviews", cutaway.load_tokenizer("cloze"))
    shutil.copy(bundled.HERE / "digits" / "example.png", tmp_path)
    Path("lines.txt").write_text("A dog runs.\n\nThe dog barks at a man.\n")
    Path("blanks.txt").write_text("The [MASK] barks.\n\n")
    guide = README.parent / "docs" / "decoding.md"
    names: dict[str, object] = {"__name__": "__main__"}
    for line, source in python_blocks(guide.read_text()):
        exec(compile("\n" * line + source, str(guide), "exec"), names)
    shown = commands(guide.read_text())
    assert len(shown) > 15
    for command in shown:
        words, target = command, None
        if ">" in words:
            words, target = words[: words.index(">")], words[-1]
        words, source = (words[: words.index("<")], words[-1]) if "<" in words else (words, None)
        ran = CliRunner().invoke(app, words[1:], input=Path(source).read_bytes() if source else None)
        assert ran.exit_code == 0, (command, ran.output)
        if target:
            Path(target).write_bytes(ran.stdout_bytes)
    assert Path("piped.de").read_bytes() == Path("lines.de").read_bytes()
    assert Path("labels.tsv").read_text().count("\n") == 3
    assert len(np.load("vectors.npy")) == 3


def test_blocks_are_found():
    assert commands("a\n```sh\nmake 'a b'   # c\n. d\n```\n```sh\ne\n```\n") == [["make", "a b"], [".", "d"], ["e"]]
    text = "a\n```python\nx = 1\n```\n```\nmake test\n```\n\n```python\ny = x\n```\n"
    assert python_blocks(text) == [(2, "x = 1\n"), (9, "y = x\n")]
