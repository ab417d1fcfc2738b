"""Recipes that could only teach nothing, or leave weights that are no numbers, end in an error and leave no model."""

from pathlib import Path

import pytest
from helpers.toy_recipes import toy

from cutaway.errors import ConfigError, InputError
from cutaway.training.datasets import prepare
from cutaway.training.train import train


@pytest.mark.parametrize(
    ("kind", "seq_len", "extra"),
    [("tag", 2, 2), ("classify", 2, 2), ("regress", 1, 2), ("masked", 2, 2), ("pretrain", 3, 3), ("spans", 2, 1)],
)
def test_rows_without_room_for_text_teach_nothing(kind: str, seq_len: int, extra: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"data.seq_len={seq_len} leaves no room for .* beside {extra} special ones"):
        prepare(toy(kind, tmp_path, data={"seq_len": seq_len}), None)


def test_one_more_is_enough_for_a_tag(tmp_path: Path) -> None:
    assert prepare(toy("tag", tmp_path, data={"seq_len": 3}), None).train.n_examples > 0


@pytest.mark.parametrize("numbers", [{"rate": 1e200}, {"weight_decay": 1e200}])
def test_weights_that_are_no_numbers_are_not_saved(numbers: dict[str, float], tmp_path: Path) -> None:
    recipe = toy("next_token", tmp_path / "data", optimizer=numbers, data={"valid_share": 0.0})
    with pytest.raises(InputError, match=r"after step 2, these weights are not finite: .* holds .*Nothing is saved"):
        train(recipe, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.safetensors"))
