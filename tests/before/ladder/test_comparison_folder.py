"""A comparison removes what it made and nothing else: a folder without its mark is refused before anything is read."""

from pathlib import Path

import pytest

from cutaway.before.ladder.compare import compare
from cutaway.before.ladder.comparison_folder import begin, check_place
from cutaway.errors import InputError


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["text/novel.txt", "models/mine.txt", "scores/mine.npy", "novel.txt", "text/0.txt"])
def test_a_folder_of_the_users_is_refused_and_stays(tmp_path: Path, name: str):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("Call me Ishmael. " * 100)
    before = everything(tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path} has other files \({name.split('/')[0]}\): name a folder of its"):
        compare([file], tmp_path)
    with pytest.raises(InputError, match="holds no comparison: start one without --resume"):
        compare([file], tmp_path, resume=True)
    assert everything(tmp_path) == before


def test_what_an_interrupted_one_left_is_removed_and_what_the_user_put_there_is_not(tmp_path: Path):
    left = ["text/train/0.txt", "text/held_out/12.txt", "text/tokenizer/tokenizer.json", "models/lstm/run/log.jsonl",
            "models/order-2/keys1.npy", "scores/order-0.npy", f"scores/.order-0.npy.{'0' * 32}.tmp"]  # fmt: skip
    begin(tmp_path / "out")
    for name in left:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("half")
    begin(tmp_path / "out")
    assert list(everything(tmp_path / "out")) == ["begun.json"]
    for name in ["text/train/novel.txt", "text/notes", "models/notes", "scores/a/b.npy", "notes"]:
        file = tmp_path / "out" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        with pytest.raises(InputError, match=rf"has other files \({name}\): name a folder of its own"):
            begin(tmp_path / "out")
        assert file.read_text() == "mine"
        file.unlink()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file: name a folder"):
        check_place(tmp_path / "file", False)
