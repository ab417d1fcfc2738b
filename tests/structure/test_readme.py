"""The README's Python runs, block after block, as a reader would type it."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line, source) of each ```python block."""
    return [
        (text[: m.start()].count("\n") + 1, m[1]) for m in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    ]


def test_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = python_blocks(README.read_text())
    assert len(blocks) == 2
    for line, source in blocks[:1]:  # the second needs SmolLM2: tests/real/test_smollm2.py runs it
        # Blank lines in front, so that a traceback shows the README's own line numbers.
        exec(compile("\n" * line + source, str(README), "exec"), names)


def test_the_guide_to_training_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guide = README.parent / "docs" / "training.md"
    blocks = python_blocks(guide.read_text())
    assert len(blocks) == 1
    for line, source in blocks:
        exec(compile("\n" * line + source, str(guide), "exec"), {"__name__": "__main__"})


def test_blocks_are_found():
    text = "a\n```python\nx = 1\n```\n```\nmake test\n```\n\n```python\ny = x\n```\n"
    assert python_blocks(text) == [(2, "x = 1\n"), (9, "y = x\n")]
