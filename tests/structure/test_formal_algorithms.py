import re
from pathlib import Path
from pkgutil import resolve_name

PAGE = (Path(__file__).parents[2] / "docs/formal-algorithms.md").read_text()


def test_every_algorithm_is_there_and_every_name_exists() -> None:
    rows = re.findall(r"^\| (\d+) .*\|$", PAGE, flags=re.MULTILINE)
    assert [int(number) for number in rows] == list(range(1, 16))
    names = re.findall(r"`(cutaway\.[a-zA-Z0-9_.]+)`", PAGE)
    assert len(names) >= 15
    for name in names:
        resolve_name(name)  # a module, too, that nothing has imported before
