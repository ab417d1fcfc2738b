"""docs/before.md says of the ablations what their scripts make of the measured numbers, and so do its pictures."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"ablations": ["parts.svg", "norms.svg"], "fine_tuning": ["fine-tuning.svg"]}


@pytest.mark.parametrize("script", MADE)
def test_the_guide_has_the_tables_and_pictures_of_what_was_measured(script, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "recipes")
    spec = importlib.util.spec_from_file_location(script, ROOT / "recipes" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    facts = shutil.copy(ROOT / module.FACTS, tmp_path)
    monkeypatch.setattr(module, "FACTS", Path(facts))
    module.show()
    tables = capsys.readouterr().out.strip().split("\n\n")
    guide = (ROOT / "docs" / "before.md").read_text(encoding="utf-8")
    for table in tables:
        assert len(table.splitlines()) > 2
        assert table in guide, f"docs/before.md is old: python recipes/{script}.py show"
    for name in MADE[script]:
        assert f"](before/{name})" in guide
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / "before" / name).read_bytes(), f"{name} is old"
