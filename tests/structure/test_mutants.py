"""The list of mutants keeps up with the code: a mutant of a line that is gone tests nothing."""

from pathlib import Path

import pytest
from mutants import MUTANTS, ROOMS, ROOT, SOURCE


@pytest.mark.parametrize("file", sorted({mutant["file"] for mutant in MUTANTS}))
def test_the_lines_of_mutants_are_there(file: str) -> None:
    text = (ROOT / SOURCE / file).read_text()
    assert not [mutant["what"] for mutant in MUTANTS if mutant["file"] == file and mutant["old"] not in text]


def test_a_mutant_differs_and_its_tests_are_there() -> None:
    assert not [mutant["what"] for mutant in MUTANTS if mutant["old"] == mutant["new"]]
    paths = {path for mutant in MUTANTS for path in mutant["tests"].partition(" -k ")[0].split()}
    assert not [path for path in paths if not Path(ROOT, path.partition("::")[0]).exists()]


def test_a_mutant_is_in_the_list_of_its_room() -> None:
    misplaced = [
        f"{mutant['file']} in {room}.toml"
        for room, mutants in ROOMS.items()
        for mutant in mutants
        if Path(mutant["file"]).parts[0].removesuffix(".py") != room
    ]
    assert misplaced == []
