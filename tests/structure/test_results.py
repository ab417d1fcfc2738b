"""docs/results.md and its picture are what docs/results.toml says, and every figure of ours has its command."""

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from cutaway.bundled import HERE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results", DOCS / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_picture_are_current(results: ModuleType) -> None:
    for file, text in results.made().items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name} is old: python docs/results.py"


def test_the_picture_is_xml_and_holds_every_label_inside(results: ModuleType) -> None:
    root = ElementTree.parse(DOCS / "results.svg").getroot()
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    points = [
        (float(text.attrib["x"]), float(text.attrib["y"])) for text in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    assert points
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_what_is_ours_says_how_to_measure_it_and_flops_say_where_from() -> None:
    tests = tomllib.loads((DOCS / "results.toml").read_text(encoding="utf-8"))["test"]
    rows = [row for test in tests for row in test["row"]]
    assert all(row["command"].startswith(("cutaway ", "python recipes/")) for row in rows if row.get("ours"))
    assert all(row["how"] for row in rows if "flops" in row)
    numbers = [(re.search(r"(?<!-)\b\d[\d.]*", row["score"]), row["value"]) for row in rows if "value" in row]
    assert all(float(score[0]) == value for score, value in numbers if score)  # the plot and the table say one thing
    assert all(score for score, _ in numbers)


def test_a_card_says_what_the_results_say() -> None:
    tests = tomllib.loads((DOCS / "results.toml").read_text(encoding="utf-8"))["test"]
    shipped = [row for test in tests for row in test["row"] if re.fullmatch("`[a-z-]+`", row["who"])]
    assert {row["who"] for row in shipped} == {"`en-de`", "`books`", "`cloze`", "`digits`"}
    for row in shipped:
        card = (HERE / row["who"].strip("`") / "README.md").read_text(encoding="utf-8")
        score, interval = re.match(r"([\d.]+) (\(.*?\))", row["score"]).groups()  # type: ignore[union-attr]
        assert re.search(rf"{re.escape(score)}\**( %\**)? {re.escape(interval)}", card), row["score"]


def test_a_test_without_ours_is_left_out(results: ModuleType) -> None:
    tests = tomllib.loads((DOCS / "results.toml").read_text(encoding="utf-8"))["test"]
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    for test in tests:
        assert (f"## {test['title']}\n" in text) == any(row.get("ours") for row in test["row"])
