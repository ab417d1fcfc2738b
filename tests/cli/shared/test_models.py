"""What the commands that run a model share."""

import gc
from contextlib import suppress

import pytest

from cutaway.cli.shared.models import importing


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_is_collected_again_after_an_import(fails: bool) -> None:
    assert gc.isenabled()
    with suppress(ImportError), importing():
        assert not gc.isenabled()
        if fails:
            raise ImportError
    assert gc.isenabled()
