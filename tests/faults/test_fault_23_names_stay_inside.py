"""Fault 23: a model name with `../`, an absolute path, or a link out of the folder is not found."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import CheckpointError
from cutaway.files import plain_child, safe_child


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "models" / "good").mkdir(parents=True)
    (tmp_path / "models" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "models" / "chain").symlink_to("link")
    (tmp_path / "models" / "up").symlink_to("..")
    (tmp_path / "models" / "loop").symlink_to("loop")
    return tmp_path / "models"


@pytest.mark.parametrize(
    "name",
    [
        "../secret", "..", ".", "", "/etc/passwd", "good/../../secret", "good/../good", "link", "chain", "up", "loop",
        "absent", "..\\secret", "good\0", "\ud800", "a" * 5000, "./good", "good/",
    ],
)  # fmt: skip
def test_fault_23_a_name_that_leads_elsewhere_is_not_found(models: Path, name: str):
    with pytest.raises(CheckpointError, match="not found in"):
        safe_child(models, name)


@pytest.mark.parametrize(
    "name", ["../secret", "..", ".", "", "/etc/passwd", "good/../../secret", "loop", "absent", "..\\secret", "a\0",
             "\ud800", "a" * 5000, "./good", "good/"],
)  # fmt: skip
def test_fault_23_a_name_that_an_index_gives_is_plain_too(models: Path, name: str):
    with pytest.raises(CheckpointError, match="not found in"):
        plain_child(models, name)


def test_fault_23_a_name_that_an_index_gives_may_be_a_link_as_the_index_may(models: Path):
    assert plain_child(models, "link") == models / "link"
    assert plain_child(models, "good") == models / "good"


@given(name=st.text(alphabet=st.sampled_from("./\\\0~ago"), max_size=12))
def test_fault_23_nothing_outside_the_folder_is_ever_given(name: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.getbasetemp() / "a" / "go"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ago").touch()
    try:
        found = safe_child(folder, name)
    except CheckpointError:
        return
    assert found.resolve().parent == folder.resolve()
