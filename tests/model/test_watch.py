"""A watch refuses what it cannot keep. Here, where no shape check is faster."""

import pytest
from helpers.tiny_models import tiny

from cutaway.errors import InputError
from cutaway.model.tap import watch


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"positions": []}, "at least one whole number"),
        ({"positions": [1.0]}, "is not a list of whole numbers"),
        ({"keep": "first"}, "is not one of 'last', 'all'"),
    ],
)
def test_what_cannot_be_kept_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(InputError, match=said), watch(tiny("gpt2"), "*", **wrong):
        pass
