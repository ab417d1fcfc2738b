"""No command writes over, or removes, what is not its own: it names what is there and the fix, before any work."""

from pathlib import Path

import pytest
from helpers.inside_commands import failed, said
from helpers.toy_recipes import values, write_files

from cutaway.checkpoints import save
from cutaway.families import build
from cutaway.tokens import train_tokenizer
from cutaway.training.recipe_file import recipe_from, to_toml
from cutaway.training.train import train

TEXT = "the cat sat on the mat and the dog ran far into the wood "


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, a text, a recipe of two steps, and a folder and some files of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    tokenizer = train_tokenizer([TEXT], kind="word")
    numbers = {
        "n_layers": 1,
        "d_model": 16,
        "n_heads": 2,
        "d_ff": 32,
        "vocab_size": tokenizer.vocab_size,
        "max_len": 16,
    }
    save(build("gpt2", **numbers).eval(), "model", tokenizer)
    Path("text.txt").write_text(TEXT * 40)
    write_files(tmp_path / "data")
    tables = {"train": {"steps": 2, "tokens": 256, "threads": 1}, "checkpoint": {"every": 1}}
    Path("recipe.toml").write_text(to_toml(recipe_from(values("next_token", tmp_path / "data", **tables))))
    for name in ("folder/README.md", "folder/text/novel.txt", "a.json", "a.html", "a.svg", "a.txt", "a.npy", "a.arpa"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("mine")
    for folder, config in (("bert", '{"model_type": "bert"}'), ("finished", '{"family": "gpt2"}')):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(config)
        Path(folder, "README.md").write_text("mine")
    Path("scripts/run").mkdir(parents=True)
    Path("scripts/run/start.sh").write_text("mine")
    return tmp_path


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMMANDS = [
    "tokenizer train text.txt --out folder", "tokenizer train text.txt --out folder --force",
    "ngram text.txt --out folder", "ngram text.txt --out folder --force", "ngram text.txt --out a.arpa",
    "vectors text.txt --out folder", "vectors text.txt --out folder --force",
    "compare text.txt --out folder", "compare text.txt --out .", "compare text.txt --out folder --resume",
    "import model folder", "import model folder --force", "export model folder --force", "pack model folder --force",
    "export model bert", "pack model finished", "import model a.json",
    "lens model the --out a.html", "lens model the --out a.json", "lens model the --out a.txt",
    "inspect model the --out a.svg", "patch model cat dog --out a.html",
    "circuit model --preset induction --out a.json", "chomsky --language local --steps 1 --out a.svg",
    "shannon text.txt --out a.svg", "shannon text.txt --play --answers text.txt --game a.json",
    "embed the --model model --out a.npy", "verify model --quick --out a.json", "plot model --out a.svg",
    "embed --model model --input text.txt --output a.txt",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_there_stays_and_is_named(command: str, place: Path):
    before = everything(place)
    words = command.split()
    there = next(word for word in words if Path(word).exists() and word not in ("model", "text.txt"))
    error = failed(*words)
    assert there in error, error
    assert any(fix in error for fix in ("name a", "another", "remove", "--force", "without --resume")), error
    assert everything(place) == before


@pytest.mark.parametrize("more", [[], ["--resume"], ["--tensorboard"]])
@pytest.mark.parametrize("out", [".", "folder", "bert", "finished", "scripts", "a.json"])
def test_train_begins_in_a_folder_of_its_own(out: str, more: list[str], place: Path):
    before = everything(place)
    error = failed("train", "recipe.toml", "--out", out, *more)
    assert out in error
    assert "another --out" in error or "without --resume" in error
    assert everything(place) == before


def test_train_writes_over_no_finished_model_whose_run_is_gone(place: Path):
    assert "the model is in" in said("train", "recipe.toml", "--out", "new")
    for gone in ("run/checkpoints", "run"):
        path = Path("new", gone)
        path.rename(place / gone.replace("/", "-"))
        before = everything(place)
        error = failed("train", "recipe.toml", "--out", "new", "--set", "seed=4")
        assert "new holds a model, and a run needs a folder of its own: choose another --out" in error
        after = {name: data for name, data in everything(place).items() if name in before}
        assert {name for name in before if after.get(name) != before[name]} <= {"new/run/lock"}  # whose process it is


def test_a_folder_called_run_without_our_lock_is_somebody_elses(place: Path):
    Path("new/run/checkpoints").mkdir(parents=True)
    Path("new/run/recipe.toml").write_text("mine")
    before = everything(place)
    assert "new holds other files (run/checkpoints)" in failed("train", "recipe.toml", "--out", "new")
    assert everything(place) == before


def test_a_readme_that_was_written_during_the_run_stays(place: Path):
    def write(event: dict) -> None:
        if event["event"] == "step":
            Path("new/README.md").write_text("mine")

    told: list[str] = []
    train("recipe.toml", "new", listeners=[write, lambda event: told.append(event.get("text", ""))])
    assert Path("new/README.md").read_text() == "mine"
    assert any("new/README.md existed before the model and is kept" in text for text in told)
    assert Path("new/config.json").exists()


def test_pages_and_pictures_of_ours_are_drawn_anew_and_force_replaces_the_rest(place: Path):
    for name in ("page.html", "page.svg"):
        said("lens", "model", "the cat", "--out", name)
        said("lens", "model", "the dog", "--out", name)
    said("lens", "model", "the cat", "--out", "page.json")
    assert "page.json is there" in failed("lens", "model", "the dog", "--out", "page.json")
    said("lens", "model", "the dog", "--out", "page.json", "--force")
    said("lens", "model", "the dog", "--out", "a.txt", "--force")
    assert Path("a.txt").read_text() != "mine"
