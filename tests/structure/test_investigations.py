"""The investigations in docs/inside: what they show is what happens. Those of SmolLM2 are in tests/real."""

import re
from pathlib import Path

import pytest
from helpers.investigations import PAGES, check, difference, needs_smollm2, pictures

PAGE = """# Two numbers
```python
from cutaway.pictures import HeatMap
values = [[1.0, 0.5], [0.25, 3.0]]
HeatMap(values, title="Values").save("values.svg")
```
![four cells](pictures/values.svg)
```python
print("the largest is", max(map(max, values)), "in row 1, head decoder.1.attention.1")
```
```text
the largest is 3.01 in row 1, head decoder.1.attention.1
```
"""


@pytest.mark.parametrize("page", [page for page in PAGES if not needs_smollm2(page)], ids=lambda page: page.stem)
def test_a_page_shows_what_its_blocks_do(page: Path, tmp_path: Path):
    assert check(page, tmp_path) >= len(pictures(page)) + 2


def test_the_pages_are_listed_and_every_picture_is_shown():
    folder = PAGES[0].parent
    listed = re.findall(r"\]\(([0-9]-[^)]*)\)", (folder / "README.md").read_text())
    assert listed == [page.name for page in PAGES]
    shown = sorted(folder / name for page in PAGES for name in pictures(page))
    assert shown == sorted((folder / "pictures").iterdir())


def checked(folder: Path, page: str = PAGE, picture: str = PAGE) -> int:
    """Checks a page; its picture was drawn by another one, as it were before."""
    (folder / "run").mkdir()
    (folder / "pictures").mkdir()
    (folder / "page.md").write_text(page)
    source = re.findall(r"^```python\n(.*?)^```$", picture, re.M | re.S)[0]
    exec(source.replace('"values.svg"', f'"{folder}/pictures/values.svg"'), {})
    return check(folder / "page.md", folder / "run")


def test_a_true_page_passes(tmp_path: Path):
    assert checked(tmp_path) == 3  # two blocks and a picture


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("3.01", "3.07", "where the page has 3.07: 3.0"),
        ("max(map(max, values))", "0.01", "where the page has 3.01: 0.01"),
        ("the largest is 3.01", "the greatest is 3.01", "where the page has «greatest»: «largest»"),
        ("in row 1, head decoder.1.attention.1\n", "in row 1, head decoder.1.attention.2\n", "attention.2»"),
        ("3.01 in row 1", "3.01 in row 2", "where the page has «2,»: «1,»"),
        ("3.01 in", "3.01", "where the page has «row»: «in»"),
        ("attention.1\n```\n", "attention.1\nand more\n```\n", "where the page has 11 words: 9"),
        ("```text\n", "```\n", "shows nothing of what it prints"),
        ("# Two numbers\n", "# Two numbers\n```text\n3.0\n```\n", "whose output is this?"),
        ("values = [", 'print("hello")\nvalues = [', "line 2 prints\nhello\n\nwhere the page has 0 words: 1"),
        ('.save("values.svg")', '.save("others.svg")', "no block saves values.svg"),
        ("pictures/values.svg", "pictures/others.svg", "no block saves others.svg"),
        ("pictures/values.svg", "values.svg", "not in pictures/"),
        ("0.25", "0.35", "is not what its block draws: values"),
        ('title="Values"', 'title="Numbers"', "is not what its block draws: title"),
    ],
)
def test_a_false_page_fails(old: str, new: str, said: str, tmp_path: Path):
    assert PAGE.count(old) == 1
    with pytest.raises(AssertionError, match=re.escape(said)):
        checked(tmp_path, PAGE.replace(old, new))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("0.97", "0.96", True),  # a digit may be rounded the other way
        ("0.02", "0.01", True),
        ("0.02", "0.00", False),
        ("0.30", "0.32", False),
        ("−0.1", "0.0", True),
        ("−0.2", "0.2", False),
        ("117.11", "119.00", True),  # 2 %
        ("117.11", "120.00", False),
        ("0.0012", "0.0014", False),
        ("3e-07", "4e-07", True),
        ("3e-07", "5e-07", False),
        ("1.5e-3", "0.0017", False),
    ],
)
def test_numbers_are_as_near_as_their_digits(shown: str, printed: str, same: bool):
    assert (difference(f"p = {shown}", f"p = {printed}") == "") is same


def test_a_picture_that_nobody_kept(tmp_path: Path):
    (tmp_path / "page.md").write_text(PAGE)
    with pytest.raises(AssertionError, match=r"values.svg, which is not there"):
        check(tmp_path / "page.md", tmp_path)
