"""What comes along: each model is what its folder and its card say."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cutaway
from cutaway.bundled import HERE
from cutaway.bundled.info import card_of
from cutaway.cli import app
from cutaway.training.recipe_file import read_recipe

ROOT = Path(__file__).parents[2]
RECIPES = {"en-de": "en-de/en-de.toml", "books": "books.toml", "cloze": "cloze.toml", "digits": "mnist.toml"}
MEGABYTE = 10**6


def appendix(folder: Path, source: str) -> list[tuple[str, str]]:
    """(sentence, answer) of one direction, from the tables of a card."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, _, table = text.partition(f"\n### {source} → ")
    return re.findall(r"^\| \d+ \| (.+) \| (.+) \|$", table.partition("\n### ")[0], re.M)


@pytest.mark.parametrize("name", RECIPES)
def test_a_folder_has_all_that_belongs_to_a_model(name: str) -> None:
    folder = HERE / name
    assert {"README.md", "LICENSE", "certificate.json", "config.json", "recipe.toml"} <= {
        f.name for f in folder.iterdir()
    }
    assert {"about", "license", "score"} <= set(card_of(folder))
    assert "@" not in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RECIPES)
def test_it_was_trained_by_the_recipe_that_is_published(name: str) -> None:
    assert read_recipe(HERE / name / "recipe.toml") == read_recipe(ROOT / "recipes" / RECIPES[name])


@pytest.mark.parametrize("name", RECIPES)
def test_its_certificate_passed_and_speaks_of_these_weights(name: str) -> None:
    ran = CliRunner().invoke(app, ["verify", name, "--check"])
    assert ran.exit_code == 0, ran.output


def test_all_weights_are_small() -> None:
    sizes = {name: sum(f.stat().st_size for f in (HERE / name).glob("*.safetensors")) for name in RECIPES}
    assert sizes["en-de"] <= 32 * MEGABYTE
    assert sum(sizes.values()) <= 85 * MEGABYTE
    limits = {"en-de": 30e6, "books": 35e6, "cloze": 20e6, "digits": 1e6}
    here = [model for model in cutaway.models() if model.folder.parent == HERE]
    assert {model.name for model in here} == set(RECIPES)
    for model in here:
        assert model.stored == "int8"
        assert model.parameters is not None
        assert model.parameters <= limits[model.name]


@pytest.mark.parametrize("source", ["English", "German"])
def test_the_translator_says_what_its_card_says(source: str) -> None:
    rows = appendix(HERE / "en-de", source)
    assert len(rows) == 50
    model, tokenizer = cutaway.load("en-de"), cutaway.load_tokenizer("en-de")
    some, to = rows[::4], "de" if source == "English" else "en"
    said = cutaway.translate(model, tokenizer, [text for text, _ in some], to=to, beam=4)
    same = sum(ours == theirs for ours, (_, theirs) in zip(said, some, strict=True))
    assert same >= len(some) - 1  # another machine may round the one that is nearly undecided


def test_the_drawn_digit_is_a_two() -> None:
    found = cutaway.classify(cutaway.load("digits"), HERE / "digits" / "example.png")
    assert found.label == "2"
    assert found.probability > 0.8


def test_the_books_know_how_a_sentence_goes_on() -> None:
    model, tokenizer = cutaway.load("books"), cutaway.load_tokenizer("books")
    text = cutaway.generate(model, tokenizer, "Once upon a", max_tokens=2)
    assert text.strip() == "time,"


def test_a_verb_agrees_with_its_subject_and_not_with_the_nearest_noun() -> None:
    model, tokenizer = cutaway.load("cloze"), cutaway.load_tokenizer("cloze")
    texts = ["The men who live next door [MASK] very kind.", "The man who knows the ladies [MASK] very kind."]
    said = [cutaway.fill(model, tokenizer, text).blanks[0][0].word for text in texts]
    assert said == ["are", "is"]
