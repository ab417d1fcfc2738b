"""The investigations of docs/inside that open SmolLM2."""

from pathlib import Path

import pytest
from helpers.investigations import PAGES, check, needs_smollm2
from helpers.real_weights import real_weights

from cutaway.checkpoints import import_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's commands have been run."""
    folder = tmp_path_factory.mktemp("smollm2")
    import_model(real_weights("smollm2"), folder / "build/smollm2")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if needs_smollm2(page)], ids=lambda page: page.stem)
def test_a_page_shows_what_its_blocks_do(page: Path, folder: Path):
    assert check(page, folder) > 2
