"""The ladder of models from n-grams to the Transformer: how much each of them gains on the same text.

    results = compare([Path("novel.txt")], Path("build/compare"), minutes=5)
    print(results.table())
    results.picture().save("compare.svg")

Every model (a "rung") is trained on the same tokens and scored on the same held-out bytes; the networks share the time
that counting leaves. The results are written after each model, so that `resume` can continue.

OUT/compare.json, table.md, compare.svg    the results
OUT/models/                                the models: folders that `cutaway ngram` and `cutaway generate` take
OUT/text/                                  the parts of the text, and the tokenizer
OUT/scores/                                ln p of every held-out token, by each model
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isclose, nan
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.arguments import with_options
from cutaway.before.ladder.comparison_folder import begin, check_place
from cutaway.before.ladder.differences import Places, Scores, best_gains, bits_by_place, places_of
from cutaway.before.ladder.rungs import NAMES, ORDERS, Counting, Rung, bits_per_byte, n_parameters, scores_of_rung
from cutaway.before.ladder.split_text import FEW, Parts, Tokenised, read_parts, refuse_marks, tokenised
from cutaway.before.ladder.table import hurried, table
from cutaway.before.ladder.train_network import (
    NETWORKS,
    Clock,
    Network,
    network_recipe,
    seconds_before,
    steps_for,
    train_network,
)
from cutaway.before.ladder.verb_agreement import Question, numbers_of, questions_of, verb_agreement
from cutaway.before.ngrams.predictor import Predictor
from cutaway.before.options import CompareOptions
from cutaway.errors import CheckpointError
from cutaway.files import damage, read_json, replacing, write_json
from cutaway.npy import open_npy
from cutaway.pictures import Lines

SAMPLE = 100  # approximate bytes of a sample
Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class ComparisonResults:
    """The results of the models that are finished, the simplest first."""

    parts: Parts
    text: Tokenised
    places: Places
    questions: list[Question]
    rungs: tuple[Rung, ...]
    scores: dict[str, Scores]

    @cached_property
    def where(self) -> list[dict[str, Any]]:
        return bits_by_place(self.places, self.scores)

    @cached_property
    def pair(self) -> tuple[str, str] | None:
        """The best network and the best n-gram model, whose words are compared."""
        best = sorted(self.rungs, key=lambda rung: rung.bits_per_byte)
        network = next((rung.name for rung in best if rung.name in NETWORKS), None)
        counted = next((rung.name for rung in best if rung.name not in NETWORKS), None)
        return None if network is None or counted is None else (network, counted)

    @cached_property
    def gains(self) -> list[dict[str, Any]]:
        if self.pair is None:
            return []
        better, worse = (self.scores[name] for name in self.pair)
        return best_gains(self.places, better, worse)

    def to_dict(self) -> dict[str, Any]:
        characters = sum(map(len, self.parts.train))
        return {
            "text": self.parts.fingerprint,
            "unit": self.text.unit,
            "trained_on": {"characters": characters, "tokens": len(self.text.train), "too_little": characters < FEW},
            "scored_on": {"bytes": self.text.n_bytes, "tokens": sum(len(ids) - 1 for ids in self.text.held_out)},
            "rungs": [rung.to_dict() for rung in self.rungs],
            "where": self.where,
            "agreement": numbers_of(self.questions),
            "gains": {"of": list(self.pair or ()), "words": self.gains},
        }

    def table(self) -> str:
        """All results, as Markdown."""
        return table(self.to_dict())

    def picture(self) -> Lines:
        """n-grams by the number of tokens that they condition on; the others as horizontal lines."""
        bits = {rung.name: rung.bits_per_byte for rung in self.rungs}
        counted = [bits.get(f"order-{order}", nan) for order in ORDERS]
        others = {name: [value] * len(ORDERS) for name, value in bits.items() if not name.startswith("order-")}
        title = "; ".join(
            [f"The ladder: bits per byte of {self.text.n_bytes:,} held-out bytes", *hurried(self.to_dict())]
        )
        return Lines(ORDERS, {"n-grams": counted, **others}, title=title, x_name="tokens that an n-gram looks at",
                     y_name="bits per byte")  # fmt: skip


@with_options
def compare(
    files: Sequence[Path],
    out: Path,
    *,
    options: CompareOptions,
    resume: bool = False,
    clock: Clock = time.perf_counter,
    progress: Progress = lambda done, name: None,
    on_result: Callable[[ComparisonResults], None] = lambda results: None,
) -> ComparisonResults:
    """Trains and scores the models that are not in the folder yet; `resume` continues a comparison.

    `on_result` gets the results so far after each model.
    """
    comparison = Comparison(files, out, options, resume, clock, progress)
    for name in NAMES:
        if name not in comparison.scores:
            comparison.add(name)
            results = comparison.results()
            _write(results, out, comparison.settings())
            on_result(results)
    progress(1.0, "")
    return comparison.results()


class Comparison:
    """One comparison in one folder."""

    def __init__(
        self, files: Sequence[Path], out: Path, options: CompareOptions, resume: bool, clock: Clock, progress: Progress
    ) -> None:
        self.out, self.options, self.clock, self.progress, self.began = out, options, clock, progress, clock()
        check_place(out, resume)
        self.parts = read_parts(files)
        self.rungs: list[Rung] = []
        self.scores: dict[str, Scores] = {}
        self.planned: dict[str, int] = {}
        self.spent = 0.0  # seconds before it was resumed …
        self.before: dict[str, float] = {}  # … and those of networks that are not finished
        if resume:
            self._resume()
        else:
            begin(out)
        self.text = tokenised(self.parts, out / "text")
        self._check_scores()
        refuse_marks(files, self.parts, self.text.tokenizer)
        for name in NETWORKS:  # an unknown change is refused before anything is counted
            network_recipe(name, self.text, 1, options.changes)
        self.places, self.counting = places_of(self.parts, self.text), Counting(self.text)
        self.questions = questions_of(self.parts, self.text)

    def settings(self) -> dict[str, Any]:
        """What a resumed comparison must not change, and the planned steps of the networks."""
        c = self.options
        fixed = {"seed": c.seed, "start": c.start, "changes": list(c.changes), "asked_steps": c.steps}
        return {**fixed, "minutes": None if c.steps else c.minutes, "steps": self.planned}

    def _resume(self) -> None:
        before = read_json(self.out / "compare.json")
        mine = {"text": self.parts.fingerprint, **self.settings()}
        with damage(self.out, "is damaged: compare.json or scores/ is incomplete"):
            settings = {"text": before["text"], **before["settings"]}
            self.planned = {str(name): int(n) for name, n in settings["steps"].items()}
            self.rungs = [Rung.from_dict(rung) for rung in before["rungs"]]
            settings.setdefault("minutes", mine["minutes"])  # older ones lack it
            self.scores = {rung.name: np.array(open_npy(self._scores(rung.name))) for rung in self.rungs}
        for name, value in mine.items():
            if name != "steps" and value != settings[name]:
                what = "text" if name == "text" else f"{name.replace('asked_', '')} ({settings[name]!r}, now {value!r})"
                raise CheckpointError(f"{self.out} was started with another {what}: name another --out")
        unfinished = self.planned.keys() - self.scores.keys()
        self.before = {name: seconds_before(self._folder(name)) for name in unfinished}
        self.spent = sum(rung.seconds for rung in self.rungs) + sum(self.before.values())

    def _check_scores(self) -> None:
        """Refuses scores of an earlier run that are not those of its table."""
        n = sum(len(ids) - 1 for ids in self.text.held_out)
        for rung in self.rungs:
            scores = self.scores[rung.name]
            if scores.shape != (n,) or not isclose(bits_per_byte(scores, self.text), rung.bits_per_byte, rel_tol=1e-9):
                raise CheckpointError(
                    f"{self._scores(rung.name)} is damaged: it does not give the {rung.bits_per_byte:.6f} bits per "
                    f"byte of compare.json; start again with another --out"
                )

    def results(self) -> ComparisonResults:
        return ComparisonResults(
            self.parts, self.text, self.places, self.questions, tuple(self.rungs), dict(self.scores)
        )

    def add(self, name: str) -> None:
        """Trains one model, scores it, and draws a sample."""
        self.progress(0.0, name)
        began = self.clock()
        model, facts = self._train_network(name) if name in NETWORKS else self._count(name)
        seconds = self.clock() - began + self.before.get(name, 0.0)
        self.progress(1.0, name)
        scores = scores_of_rung(model, self.text)
        bits, sample = bits_per_byte(scores, self.text), self._sample(model)
        self._scores(name).parent.mkdir(exist_ok=True)
        with replacing(self._scores(name)) as temporary, temporary.open("wb") as file:
            np.save(file, scores)
        self.scores[name] = scores
        facts |= {"agreement": verb_agreement(model, self.questions)}
        self.rungs.append(Rung(name=name, bits_per_byte=bits, seconds=seconds, sample=sample, **facts))

    def _count(self, name: str) -> tuple[Predictor, dict[str, Any]]:
        model, counts = self.counting.model(name, self._folder(name), lambda done: self.progress(done, name))
        return model, {"about": str(model), "parameters": n_parameters(model), "flops": None, "counts": counts}

    def _train_network(self, name: str) -> tuple[Predictor, dict[str, Any]]:
        network, flops, taken = self._network(name, self._folder(name))
        config = network.model.config.to_dict()
        layers = f"{config['n_layers']} layer{'' if config['n_layers'] == 1 else 's'}"
        about = f"{layers} of {config['d_model']}, {taken:,} of {self.planned[name]:,} steps"
        facts = {"parameters": network.model.n_parameters(), "flops": flops, "counts": None, "steps": taken}
        return network, {"about": about, **facts}

    def _network(self, name: str, folder: Path) -> tuple[Network, float, int]:
        share = inf if self.options.steps is not None else self._share(name)
        begun = self.clock()
        if name not in self.planned:
            shutil.rmtree(folder, ignore_errors=True)
            steps = self.options.steps
            self.planned[name] = steps or steps_for(name, self.text, share, self.clock, self.options.changes)
            _note(self.out, self.settings())
        return train_network(
            name,
            self.text,
            folder,
            steps=self.planned[name],
            seconds=share - (self.clock() - begun),
            clock=self.clock,
            changes=self.options.changes,
            progress=lambda done: self.progress(done, name),
        )

    def _share(self, name: str) -> float:
        """The seconds of a network: an equal share of what counting left, and at most what is left in all."""
        counted = sum(rung.seconds for rung in self.rungs if rung.name not in NETWORKS)
        seconds = self.options.minutes * 60
        left = seconds - (self.clock() - self.began) - self.spent
        return max(min((seconds - counted) / len(NETWORKS) - self.before.get(name, 0.0), left), 0.0)

    def _sample(self, model: Predictor) -> str:
        tokenizer = self.text.tokenizer
        start = tokenizer.encode(self.options.start, special=False)
        per_token = self.text.n_bytes / sum(len(ids) - 1 for ids in self.text.held_out)
        ids = model.generate(start, seed=self.options.seed, limit=round(SAMPLE / per_token))
        return tokenizer.decode([id for id in ids if id != self.text.end])

    def _folder(self, name: str) -> Path:
        return self.out / "models" / name

    def _scores(self, name: str) -> Path:
        return self.out / "scores" / f"{name}.npy"


def _note(out: Path, settings: dict[str, Any]) -> None:
    """Saves the planned steps of a network before it is trained."""
    path = out / "compare.json"
    write_json(path, {**read_json(path), "settings": settings})


def _write(results: ComparisonResults, out: Path, settings: dict[str, Any]) -> None:
    write_json(out / "compare.json", {**results.to_dict(), "settings": settings})
    with replacing(out / "table.md") as temporary:
        temporary.write_text(results.table(), encoding="utf-8", newline="\n")
    results.picture().save(out / "compare.svg")
