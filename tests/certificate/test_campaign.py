"""The campaign of broken and sound models (bench/campaign/models.py) has enough of both, and tells them apart."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = str(Path(__file__).parents[2] / "bench")


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # it sets some, which are put back
    monkeypatch.setenv("CUTAWAY_TYPECHECK", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield import_module("campaign.models")
    for name in [name for name in sys.modules if name.split(".")[0] == "campaign"]:
        del sys.modules[name]


def test_there_are_enough_of_both(campaign: Any) -> None:
    broken = {(it.said, it.family, it.precision) for it in campaign.BREAKS}
    assert len({it.said for it in campaign.BREAKS}) >= 45
    assert len(broken) == len(campaign.BREAKS)
    assert len(set(map(str, campaign.SOUND))) == len(campaign.SOUND) >= 40
    families = {model.family.split("-")[0] for model in campaign.SOUND}
    assert families == {it.family.split("-")[0] for it in campaign.BREAKS}
    assert families == {"bert", "gpt", "gpt2", "llama", "lstm", "roberta", "roformer", "t5", "transformer", "vit"}


def test_a_break_ends_with_its_model(campaign: Any) -> None:
    broken = next(it for it in campaign.BREAKS if it.said == "each row has the padding mask of its neighbour")
    model = campaign.Sound(*broken[2:5])
    assert campaign.judged(model, 0, broken)[0] == "failed"
    assert campaign.judged(model, 0) == ("passed", "")


def test_a_break_that_is_missed_is_a_failure(campaign: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(campaign, "judged", lambda model, seed, broken=None: ("passed", ""))
    assert campaign.run(only="each row has the padding mask") == 1
    monkeypatch.setattr(campaign, "judged", lambda model, seed, broken=None: ("failed", "x"))
    assert campaign.run(only="vit (task=hidden) in fp32") == 1
    assert "FAILS: sound: vit (task=hidden) in fp32: failed x" in capsys.readouterr().out
