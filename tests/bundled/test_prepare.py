"""What the translator learns from has nothing of its test: recipes/en-de/prepare.py on pairs with planted ones."""

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

RECIPES = Path(__file__).parents[2] / "recipes" / "en-de"
TEST = [("Tom likes tea.", "Tom mag Tee."), ("It is 7:30.", "Es ist halb acht.")]
PLANTED = [
    ("tom  LIKES tea!", "Er trinkt gern."),  # the English side, written otherwise
    ("Half past seven it is.", "„Es ist halb acht“"),  # the German side
    ("Tom mag Tee", "Wer?"),  # in the other language's column
]


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", RECIPES / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DEV", 5)
    return module


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{english}\t{german}\tTatoeba\n" for english, german in pairs)


def test_no_sentence_of_the_test_is_left(prepare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = [(f"Room {i} is free.", f"Zimmer {i} ist frei.") for i in range(30)]
    write(tmp_path / prepare.TEST, TEST)
    write(tmp_path / prepare.TRAIN[0], [*fine[:20], *PLANTED])
    write(tmp_path / prepare.TRAIN[1], [*fine[20:], *PLANTED])
    monkeypatch.setattr(sys, "argv", ["prepare", str(tmp_path), str(tmp_path / "out")])
    prepare.main()
    rows = {
        name: (tmp_path / "out" / name).read_text(encoding="utf-8").splitlines() for name in ("train.tsv", "dev.tsv")
    }
    train, dev = ([tuple(line.split("\t")) for line in lines[1:]] for lines in rows.values())
    assert sorted(train + dev) == sorted(fine)  # and nothing is lost that may stay
    assert (len(train), len(dev)) == (25, 5)


@pytest.mark.parametrize("pair", PLANTED)
def test_one_that_is_left_stops_it(prepare: ModuleType, pair: tuple[str, str]) -> None:
    with pytest.raises(SystemExit, match="is in the test"):
        prepare.check([("A dog.", "Ein Hund."), pair], prepare.sentences(TEST))
