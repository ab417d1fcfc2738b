"""The wheel carries every model that lies in src/cutaway/bundled: hatchling is asked what it would pack."""

import shutil
import tomllib
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from cutaway.bundled.info import card_of

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "src" / "cutaway" / "bundled"


def packed(root: Path) -> set[str]:
    return {file.distribution_path for file in WheelBuilder(str(root)).recurse_included_files()}


def test_all_that_is_bundled_is_packed() -> None:
    files = [file for file in BUNDLED.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    there = packed(ROOT)
    assert [file for file in files if file.relative_to(ROOT / "src").as_posix() not in there] == []
    assert "cutaway/bundled/digits/example.png" in there


def test_a_new_model_is_packed_whatever_its_files_are_called(tmp_path: Path) -> None:
    for name in ("pyproject.toml", ".gitignore", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    model = tmp_path / "src" / "cutaway" / "bundled" / "en-de"
    model.mkdir(parents=True)
    (tmp_path / "src" / "cutaway" / "__init__.py").touch()
    names = ["config.json", "model-00001-of-00002.safetensors", "model.safetensors", "model.safetensors.index.json",
             "tokenizer.json", "README.md", "LICENSE", "certificate.json", "recipe.toml"]  # fmt: skip
    for name in names:
        (model / name).touch()
    assert {f"cutaway/bundled/en-de/{name}" for name in names} <= packed(tmp_path)


def test_the_licences_of_all_weights_are_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    models = [folder for folder in BUNDLED.iterdir() if (folder / "config.json").is_file()]
    assert {folder.name for folder in models} == {"en-de", "books", "cloze", "digits"}
    assert {"Apache-2.0", *(card_of(folder)["license"] for folder in models)} == set(project["license"].split(" AND "))
    there = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert {folder / "LICENSE" for folder in models} | {ROOT / "LICENSE"} == there
