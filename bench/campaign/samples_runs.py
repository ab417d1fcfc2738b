"""Recipes, logs, certificates, and what the tools inside write."""

import contextlib
import importlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from campaign.reader import Reader, files_of, only, small


def _recipes(place: Path) -> Reader:
    from helpers.toy_recipes import KINDS, toy

    from cutaway.training.recipe_file import read_recipe, to_toml

    samples = [{"recipe.toml": to_toml(toy(kind, place)).encode()} for kind in KINDS]

    def read(folder: Path, out: Path) -> None:
        again = to_toml(read_recipe(folder / "recipe.toml"))
        (out / "recipe.toml").write_text(again, encoding="utf-8")
        read_recipe(out / "recipe.toml")
        (out / "recipe.toml").unlink()

    return Reader("recipes", samples, read, 1.5)


def _logs(place: Path) -> Reader:
    from cutaway.cli.plot import plot
    from cutaway.cli.runs import runs

    events: list[dict[str, Any]] = [
        {"event": "start", "name": "x", "parameters": 1234, "steps": 40, "unit": "tokens", "recipe": {"seed": 1}}
    ]
    for step in range(1, 41):
        event = {
            "event": "step",
            "step": step,
            "steps": 40,
            "loss": 5 / step,
            "tokens_per_second": 900.5,
            "seconds": step,
        }
        events.append(event)
        if step % 10 == 0:
            events.append({"event": "evaluate", "step": step, "loss": 6 / step, "accuracy": 0.5, "samples": ["a"]})
            events.append({"event": "checkpoint", "step": step, "seconds": step})
    events.append({"event": "end", "step": 40, "reason": "done", "seconds": 41.5})
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    whole = (
        json.dumps({"event": "start", "name": "x", "steps": 9})
        + "\n"
        + json.dumps({"event": "step", "step": 1, "loss": 2.0})
        + "\n"
    )
    samples = [
        {"one/run/log.jsonl": data, "two/run/log.jsonl": data},
        {"one/run/log.jsonl": data, "two/run/log.jsonl": whole.encode()},
    ]

    def read(folder: Path, out: Path) -> None:
        for as_json in (False, True):
            said = _printed(lambda as_json=as_json: runs([folder], as_json=as_json))
        if len(json.loads(said)) < (samples[1]["two/run/log.jsonl"] == (folder / "two/run/log.jsonl").read_bytes()):
            raise AssertionError("a sound run is hidden")
        plot([folder / "one", folder / "two"], out=out / "x.svg", as_json=False)
        (out / "x.svg").unlink()

    return Reader("run logs", samples, read, 1.5)


def _printed(work: Callable[[], None]) -> str:
    paper = io.StringIO()
    with contextlib.redirect_stdout(paper):
        work()
    paper.getvalue().encode()
    return paper.getvalue()


def _certificates(place: Path) -> Reader:

    from cutaway.certificate import verify
    from cutaway.checkpoints import save

    command = importlib.import_module("cutaway.cli.verify")
    for family in ("vit", "gpt2"):
        save(small(family), place / family)
        replace(verify(place / family, quick=True), date="2026-01-01").write(place / family / "certificate.json")
    samples = [files_of(place / family) for family in ("vit", "gpt2")]

    def read(folder: Path, out: Path) -> None:
        import typer

        for as_json in (False, True):
            with contextlib.suppress(typer.Exit):
                _printed(
                    lambda as_json=as_json: command.verify(
                        folder, check=True, device=command.Device.auto, as_json=as_json
                    )
                )

    return Reader("certificates", samples, read, only="certificate.json")


def _listed(place: Path) -> Reader:
    """What `cutaway models` and `cutaway describe` look at."""
    from cutaway.bundled.info import look_at
    from cutaway.checkpoints import save

    save(small("gpt2"), place / "one", shard_size=20_000)
    save(small("bert"), place / "two", store="int8")
    card = b"---\nabout: \"A model.\"\nlicense: MIT\nscore: 'x'\n---\n# Card\n"
    samples = [files_of(place / name) | {"README.md": card} for name in ("one", "two")]

    def read(folder: Path, out: Path) -> None:
        from cutaway.errors import CheckpointError

        said = json.dumps(look_at("x", folder).to_dict(), ensure_ascii=False)
        said.encode()
        if problem := json.loads(said)["problem"]:
            raise CheckpointError(problem)

    return Reader("list of models", samples, read)


def _inside(place: Path) -> Reader:
    import torch

    from cutaway.checkpoints.tensors import write_tensors
    from cutaway.inside.circuits.circuit import Circuit
    from cutaway.inside.circuits.ioi import IoiTemplates
    from cutaway.inside.residual.steering import Steering
    from cutaway.pictures.heat_map import HeatMap

    circuit = Circuit(
        "x", {"family": "gpt2"}, ("decoder.0.attention.1", "decoder.1.attention.1"),
        roles={"decoder.0.attention.1": "a"}, effects={"decoder.0.attention.1": 0.5},
        edges=(("decoder.0.attention.1", "decoder.1.attention.1", 0.5),),
    )  # fmt: skip
    circuit.save(place / "circuit.json")
    numbers = np.random.default_rng(0).standard_normal((5, 4))
    picture = HeatMap(numbers, tuple("abcde"), tuple("wxyz"), "title")
    large = HeatMap(np.zeros((110, 100)), tuple(map(str, range(110))), tuple(map(str, range(100))), "large")
    for suffix in ("html", "svg", "json"):
        picture.save(place / f"picture.{suffix}")
    large.save(place / "large.json")
    write_tensors(place / "steering.safetensors", {"block.0": torch.randn(8)}, {"format": "cutaway steering"})
    templates = {
        "BABA_TEMPLATES": ["[B] and [A] gave [OBJECT] at [PLACE] to [A]"],
        "NAMES": ["Tom", "Ann"],
        "PLACES": ["x"],
        "OBJECTS": ["y"],
    }
    (place / "templates.json").write_text(json.dumps(templates))
    samples = [{path.name: path.read_bytes()} for path in sorted(place.iterdir())]
    readers: dict[str, Callable[[Path], Any]] = {
        "circuit": Circuit.load, "picture": _redrawn, "large": _redrawn, "steering": Steering.load,
        "templates": IoiTemplates.read,
    }  # fmt: skip
    return Reader(
        "files of the tools inside", samples, lambda folder, out: readers[only(folder).stem](only(folder)), 1.5
    )


def _redrawn(path: Path) -> None:
    from cutaway.pictures import read_picture

    picture = read_picture(path)
    for said in (picture.svg(), picture.text(), picture.html()):
        said.encode()


def _games(place: Path) -> Reader:
    from cutaway.before.shannon.game import read_game

    game = {"game": "shannon", "known": [1, 2], "first": 0, "seed": 1, "samples": 3, "guesses": ["ab"], "open": "x"}
    record = {"lines": 3, "sha256": "0" * 64, "settings": {"beam": 4}}

    def read(folder: Path, out: Path) -> None:
        from cutaway.decoding.line_files import _earlier_run

        if (folder / "game.json").exists():
            read_game(folder / "game.json")
        else:
            _earlier_run(folder / "x", 1, {"beam": 4})

    return Reader(
        "games and records",
        [{"game.json": json.dumps(game).encode()}, {".x.progress": json.dumps(record).encode()}],
        read,
        0.5,
    )


MAKERS = [_recipes, _logs, _certificates, _listed, _inside, _games]
