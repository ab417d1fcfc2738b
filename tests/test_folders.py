"""A folder is replaced whole or not at all, whenever its writer is killed, and nothing that is not ours is touched."""

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from helpers.faults.kill_before import kill_before

from cutaway import folders
from cutaway.errors import CheckpointError, InputError
from cutaway.files import held
from cutaway.folders import Kind, check_folder, finish_replacing, replacing_folder

KIND = Kind("thing", "seal", ("seal", "part-*", "old"))
OLD = {"seal": "1", "part-1": "1", "old": "1"}
NEW = {"seal": "2", "part-1": "2", "part-2": "2"}
WAYS = ["exchange", "no exchange", "no links", "working directory", "subfolder", "mounted"]
Way = Callable[[Path], None]


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def everything(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """All that can keep two folders from changing places."""

    def refused(*given: object, **more: object) -> None:
        raise OSError(22, "Invalid argument")

    def prepare(place: Path) -> None:
        match request.param:
            case "no exchange":
                monkeypatch.setattr(folders, "exchange", refused)
            case "no links":
                monkeypatch.setattr(os, "link", refused)
            case "working directory":
                monkeypatch.chdir(place)
            case "subfolder":
                (place / "run").mkdir()
                (place / "run" / "log").write_text("mine")
            case "mounted":
                monkeypatch.setattr(Path, "is_mount", lambda path: path == place)

    return prepare


def replace(place: Path) -> None:
    with replacing_folder(place, KIND) as fresh:
        write(fresh, NEW)


def test_new_files_take_the_place_of_old_ones_and_the_rest_stays(tmp_path: Path, way: Way):
    place = tmp_path / "thing"
    write(place, OLD | {"notes": "mine"})
    (place / "link").symlink_to("notes")
    place.chmod(0o750)
    way(place)
    before = everything(place)
    replace(place)
    assert everything(place) == {name: before[name] for name in before if name not in OLD} | NEW
    assert (place / "link").is_symlink()
    assert place.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


@pytest.mark.parametrize("way", ["exchange", "no exchange", "subfolder"], indirect=True)
def test_it_is_the_old_or_the_new_whenever_the_writer_is_killed(
    tmp_path: Path, way: Way, request: pytest.FixtureRequest
):
    """Where the folders cannot change places there is a while without the seal, and then a reader brings the new."""
    place, kept = tmp_path / "thing", tmp_path / "kept"
    write(place, OLD | {"notes": "mine"})
    way(place)
    shutil.copytree(place, kept)
    mine = {name: text for name, text in everything(kept).items() if name not in OLD}
    seen = set()

    def anew() -> None:
        for path in [*place.iterdir(), *(path for path in tmp_path.iterdir() if path not in (place, kept))]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(kept, place, dirs_exist_ok=True)

    for number in count():
        anew()
        if not kill_before(lambda: replace(place), number):
            break
        found = read(place)
        whole = {name: found[name] for name in found if name not in mine and not name.startswith(".")}
        if whole not in (OLD, NEW):
            assert "seal" not in found  # nobody takes it for a thing
            assert (place / folders.JOURNAL).exists()
            seen.add("between")
        finish_replacing(place)
        found = {name: text for name, text in everything(place).items() if not name.startswith(".")}
        assert found in (OLD | mine, NEW | mine), number
        seen.add(found["seal"])
        replace(place)  # the next writer
        assert everything(place) == NEW | mine
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "thing"]
    assert {"1", "2"} <= seen
    assert ("between" in seen) == (request.node.callspec.params["way"] != "exchange")


def test_a_kill_while_the_rest_is_moved_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where it is moved by somebody who only reads, and who is killed as well."""
    place = tmp_path / "thing"

    def begun() -> None:
        shutil.rmtree(place, ignore_errors=True)
        write(place, OLD)
        write(place / folders.JOURNAL, NEW | {folders.PLAN: '{"seal": "seal", "remove": ["old"]}'})

    begun()
    for number in count():
        begun()
        if not kill_before(lambda: finish_replacing(place), number):
            break
        finish_replacing(place)
        assert everything(place) == NEW
    assert number > 4


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_folder_and_no_other(tmp_path: Path, way: Way, error: BaseException):
    place = tmp_path / "thing"
    write(place, OLD)
    way(place)
    before = everything(place)

    def stopped() -> None:
        with replacing_folder(place, KIND) as fresh:
            write(fresh, NEW)
            raise error

    with pytest.raises((CheckpointError, KeyboardInterrupt)):
        stopped()
    assert everything(place) == before
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]
    with pytest.raises(CheckpointError, match=r"thing/part-2: bad"), replacing_folder(place, KIND) as fresh:
        raise CheckpointError(f"{fresh / 'part-2'}: bad")  # the name that the user knows


def test_what_is_refused_leaves_no_parents_behind(tmp_path: Path):
    with pytest.raises(InputError), replacing_folder(tmp_path / "a" / "b" / "thing", KIND):
        raise InputError("no")
    assert not list(tmp_path.iterdir())
    replace(tmp_path / "a" / "b" / "thing")
    assert everything(tmp_path / "a" / "b" / "thing") == NEW


def test_what_somebody_puts_there_at_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place, exchange = tmp_path / "thing", folders.exchange
    write(place, OLD)

    def late(one: Path, other: Path) -> None:
        (place / "notes").write_text("mine")
        exchange(one, other)

    monkeypatch.setattr(folders, "exchange", late)
    replace(place)
    assert everything(place) == NEW | {"notes": "mine"}


def test_a_folder_of_a_files_name_is_refused_while_the_old_files_are_there(tmp_path: Path):
    place = tmp_path / "thing"
    write(place, OLD)
    (place / "part-2").mkdir()
    (place / "part-2" / "x").write_text("mine")
    with pytest.raises(CheckpointError, match="part-2 is a folder, where a file should go"):
        replace(place)
    assert everything(place) == OLD | {"part-2/x": "mine"}


def test_two_writers_at_once_do_not_sweep_each_other_away(tmp_path: Path):
    place = tmp_path / "thing"
    with replacing_folder(place, KIND) as fresh:
        write(fresh, OLD)
        replace(place)
        assert read(fresh) == OLD
        with pytest.raises(BlockingIOError), held(fresh, wait=False):
            pass
    assert everything(place) == OLD


@pytest.mark.parametrize("plan", ['{"seal": "seal", "remove": ["../mine"]}', '{"seal": "../mine", "remove": []}', "{}"])
def test_a_plan_from_elsewhere_reaches_nothing_outside(tmp_path: Path, plan: str):
    (tmp_path / "mine").write_text("mine")
    write(tmp_path / "thing", OLD)
    write(tmp_path / "thing" / folders.JOURNAL, NEW | {folders.PLAN: plan})
    with pytest.raises(CheckpointError, match="not ours"):
        finish_replacing(tmp_path / "thing")
    assert (tmp_path / "mine").read_text() == "mine"
    assert read(tmp_path / "thing") == OLD


def test_a_linked_journal_is_left_alone_and_so_is_what_it_leads_to(tmp_path: Path):
    """What lies there is not of this folder: it may be another's, or a trap."""
    place, elsewhere = tmp_path / "thing", tmp_path / "elsewhere"
    write(place, OLD)
    write(elsewhere, NEW | {folders.PLAN: '{"seal": "seal", "remove": ["old"]}'})
    before = everything(elsewhere)
    (place / folders.JOURNAL).symlink_to(elsewhere)
    finish_replacing(place)
    assert read(place) == OLD
    assert everything(elsewhere) == before


@pytest.mark.parametrize("why", ["working directory", "mounted", "its parent may not be written to"])
def test_a_folder_that_others_stand_in_stays_the_same_folder(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch):
    """Whoever stands in the old one would otherwise go on to read files that are gone."""
    place, access = tmp_path / "thing", os.access
    write(place, OLD)
    match why:
        case "working directory":
            monkeypatch.chdir(place)
        case "mounted":
            monkeypatch.setattr(Path, "is_mount", lambda path: path == place)
        case _:
            monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and access(path, mode))
    number = place.stat().st_ino
    replace(place)
    assert everything(place) == NEW
    assert place.stat().st_ino == number


def test_a_folder_that_is_not_ours_is_refused_with_its_name_and_the_fix(tmp_path: Path):
    place = tmp_path / "thing"
    check_folder(place, KIND, force=False)
    write(place, {})
    check_folder(place, KIND, force=False)
    write(place, {"notes": "mine"})
    for force in (False, True):
        with pytest.raises(InputError, match=r"--out .*thing holds other files and no thing: name another folder"):
            check_folder(place, KIND, force=force, name="--out")
    write(place, OLD)
    with pytest.raises(InputError, match=r"thing is not empty: .* replace the thing in it with --force"):
        check_folder(place, KIND, force=False, by="--force", shared=True)
    check_folder(place, KIND, force=True, shared=True)
    with pytest.raises(InputError, match=r"has other files \(notes\): name a folder of its own"):
        check_folder(place, KIND, force=True)
    with pytest.raises(InputError, match="is a file: name a folder to write"):
        check_folder(place / "notes", KIND, force=True)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_a_kill_left_half_moved_is_judged_as_what_it_will_be(tmp_path: Path, force: bool, shared: bool):
    """Without its seal it would be taken for another's, and the journal for a file of the user's."""
    place = tmp_path / "thing"
    write(place, {"part-1": "1", "old": "1"})
    write(place / folders.JOURNAL, NEW | {folders.PLAN: '{"seal": "seal", "remove": ["old"]}'})
    if force:
        check_folder(place, KIND, force=True, shared=shared)
    else:
        with pytest.raises(InputError, match="thing is not empty"):
            check_folder(place, KIND, force=False, shared=shared)
    assert everything(place) == NEW
