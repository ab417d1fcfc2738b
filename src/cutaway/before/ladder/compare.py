"""The ladder: what each step from counting to the Transformer buys, on one text and one axis.

    found = compare([Path("novel.txt")], Path("build/compare"), minutes=5)
    print(found.table())
    found.picture().save("compare.svg")

Every rung learns from the same tokens and is scored on the same held-out bytes; the networks share what the counting
leaves of the time. After each rung all that is known lies in the folder, and `resume` goes on behind it.

OUT/compare.json, table.md, compare.svg    what was found
OUT/models/                                the models: folders that `cutaway ngram` and `cutaway generate` take
OUT/text/                                  the parts of the text, and the tokenizer
OUT/scores/                                ln p of every held-out token, by each rung
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.before.ladder.comparison_folder import begin, check_place
from cutaway.before.ladder.differences import Places, Scores, best_gains, bits_by_place, places_of
from cutaway.before.ladder.rungs import NAMES, ORDERS, Counting, Rung, bits_per_byte, numbers_in, scores_of_rung
from cutaway.before.ladder.split_text import FEW, Parts, Tokenised, read_parts, refuse_marks, tokenised
from cutaway.before.ladder.table import hurried, table
from cutaway.before.ladder.train_network import (
    NETWORKS,
    Clock,
    Network,
    network_recipe,
    seconds_before,
    steps_for,
    trained_network,
)
from cutaway.before.ladder.verb_agreement import Question, numbers_of, questions_of, verb_agreement
from cutaway.before.ngrams.predictor import Predictor
from cutaway.errors import CheckpointError
from cutaway.files import damage, read_json, replacing, write_json
from cutaway.npy import open_npy
from cutaway.pictures import Lines

SAMPLE = 100  # bytes of a sample, about
Told = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class ComparisonResults:
    """The rungs that are finished, from below."""

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
        """Whose words are shown: the best network, and the best rung that counts."""
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
        """All of it, as Markdown."""
        return table(self.to_dict())

    def picture(self) -> Lines:
        """n-grams by the tokens that they look at; the others look at more, and are levels."""
        bits = {rung.name: rung.bits_per_byte for rung in self.rungs}
        counted = [bits.get(f"order-{order}", nan) for order in ORDERS]
        others = {name: [value] * len(ORDERS) for name, value in bits.items() if not name.startswith("order-")}
        title = "; ".join(
            [f"The ladder: bits per byte of {self.text.n_bytes:,} held-out bytes", *hurried(self.to_dict())]
        )
        return Lines(ORDERS, {"n-grams": counted, **others}, title=title, x_name="tokens that an n-gram looks at",
                     y_name="bits per byte")  # fmt: skip


def compare(
    files: Sequence[Path],
    out: Path,
    *,
    minutes: float = 5.0,
    steps: int | None = None,
    changes: Sequence[str] = (),
    start: str = "\n",
    seed: int = 0,
    resume: bool = False,
    clock: Clock = time.perf_counter,
    report: Told = lambda done, what: None,
    finished: Callable[[ComparisonResults], None] = lambda found: None,
) -> ComparisonResults:
    """Trains what is not there yet. With `steps` the networks take so many, however long that lasts."""
    ladder = Ladder(files, out, minutes * 60, steps, changes, start, seed, resume, clock, report)
    for name in NAMES:
        if name not in ladder.scores:
            ladder.climb(name)
            found = ladder.found()
            _write(found, out, ladder.settings())
            finished(found)
    report(1.0, "")
    return ladder.found()


class Ladder:
    """One comparison in one folder."""

    def __init__(
        self,
        files: Sequence[Path],
        out: Path,
        seconds: float,
        steps: int | None,
        changes: Sequence[str],
        start: str,
        seed: int,
        resume: bool,
        clock: Clock,
        report: Told,
    ) -> None:
        self.out, self.changes, self.start, self.seed = out, changes, start, seed
        self.seconds, self.steps, self.clock, self.report, self.began = seconds, steps, clock, report, clock()
        check_place(out, resume)
        self.parts = read_parts(files)
        self.rungs: list[Rung] = []
        self.scores: dict[str, Scores] = {}
        self.planned: dict[str, int] = {}
        self.spent = 0.0  # before it was resumed …
        self.before: dict[str, float] = {}  # … and of that in networks that are not finished
        if resume:
            self._go_on()
        else:
            begin(out)
        self.text = tokenised(self.parts, out / "text")
        refuse_marks(files, self.parts, self.text.tokenizer)
        for name in NETWORKS:  # a change that no recipe knows is refused before anything is counted
            network_recipe(name, self.text, 1, changes)
        self.places, self.counting = places_of(self.parts, self.text), Counting(self.text)
        self.questions = questions_of(self.parts, self.text)

    def settings(self) -> dict[str, Any]:
        """What a resumed comparison must not change, and how many steps the networks take."""
        fixed = {"seed": self.seed, "start": self.start, "changes": list(self.changes), "asked_steps": self.steps}
        return {**fixed, "minutes": None if self.steps else self.seconds / 60, "steps": self.planned}

    def _go_on(self) -> None:
        before = read_json(self.out / "compare.json")
        mine = {"text": self.parts.fingerprint, **self.settings()}
        with damage(self.out, "is damaged, compare.json or scores/ is not whole"):
            settings = {"text": before["text"], **before["settings"]}
            self.planned = {str(name): int(n) for name, n in settings["steps"].items()}
            self.rungs = [Rung(**rung) for rung in before["rungs"]]
            settings.setdefault("minutes", mine["minutes"])  # older ones did not say
            self.scores = {rung.name: np.array(open_npy(self._scores(rung.name))) for rung in self.rungs}
        for name, value in mine.items():
            if name != "steps" and value != settings[name]:
                what = "text" if name == "text" else f"{name.replace('asked_', '')} ({settings[name]!r}, now {value!r})"
                raise CheckpointError(f"{self.out} was begun with another {what}: name another --out")
        unfinished = self.planned.keys() - self.scores.keys()
        self.before = {name: seconds_before(self._folder(name)) for name in unfinished}
        self.spent = sum(rung.seconds for rung in self.rungs) + sum(self.before.values())

    def found(self) -> ComparisonResults:
        return ComparisonResults(
            self.parts, self.text, self.places, self.questions, tuple(self.rungs), dict(self.scores)
        )

    def climb(self, name: str) -> None:
        """One rung: trained, scored, and asked for a sample."""
        self.report(0.0, name)
        began = self.clock()
        model, facts = self._networked(name) if name in NETWORKS else self._counted(name)
        seconds = self.clock() - began + self.before.get(name, 0.0)
        self.report(1.0, name)
        scores = scores_of_rung(model, self.text)
        bits, sample = bits_per_byte(scores, self.text), self._sample(model)
        self._scores(name).parent.mkdir(exist_ok=True)
        with replacing(self._scores(name)) as temporary, temporary.open("wb") as file:
            np.save(file, scores)
        self.scores[name] = scores
        facts |= {"agreement": verb_agreement(model, self.questions)}
        self.rungs.append(Rung(name=name, bits_per_byte=bits, seconds=seconds, sample=sample, **facts))

    def _counted(self, name: str) -> tuple[Predictor, dict[str, Any]]:
        model, counts = self.counting.model(name, self._folder(name), lambda done: self.report(done, name))
        return model, {"about": str(model), "parameters": numbers_in(model), "flops": None, "counts": counts}

    def _networked(self, name: str) -> tuple[Predictor, dict[str, Any]]:
        network, flops, taken = self._network(name, self._folder(name))
        config = network.model.config.to_dict()
        layers = f"{config['n_layers']} layer{'' if config['n_layers'] == 1 else 's'}"
        about = f"{layers} of {config['d_model']}, {taken:,} of {self.planned[name]:,} steps"
        facts = {"parameters": network.model.n_parameters(), "flops": flops, "counts": None, "steps": taken}
        return network, {"about": about, **facts}

    def _network(self, name: str, folder: Path) -> tuple[Network, float, int]:
        share = inf if self.steps is not None else self._share(name)
        begun = self.clock()
        if name not in self.planned:
            shutil.rmtree(folder, ignore_errors=True)
            self.planned[name] = self.steps or steps_for(name, self.text, share, self.clock, self.changes)
            _note(self.out, self.settings())
        return trained_network(
            name,
            self.text,
            folder,
            steps=self.planned[name],
            seconds=share - (self.clock() - begun),
            clock=self.clock,
            changes=self.changes,
            report=lambda done: self.report(done, name),
        )

    def _share(self, name: str) -> float:
        """Each network has as many seconds as the other: what counting left, halved; and never more than are left."""
        counted = sum(rung.seconds for rung in self.rungs if rung.name not in NETWORKS)
        left = self.seconds - (self.clock() - self.began) - self.spent
        return max(min((self.seconds - counted) / len(NETWORKS) - self.before.get(name, 0.0), left), 0.0)

    def _sample(self, model: Predictor) -> str:
        tokenizer = self.text.tokenizer
        asked = tokenizer.encode(self.start, special=False)
        per_token = self.text.n_bytes / sum(len(ids) - 1 for ids in self.text.held_out)
        said = model.generate(asked, seed=self.seed, limit=round(SAMPLE / per_token))
        return tokenizer.decode([id for id in said if id != self.text.end])

    def _folder(self, name: str) -> Path:
        return self.out / "models" / name

    def _scores(self, name: str) -> Path:
        return self.out / "scores" / f"{name}.npy"


def _note(out: Path, settings: dict[str, Any]) -> None:
    """The steps of a network that begins now."""
    path = out / "compare.json"
    write_json(path, {**read_json(path), "settings": settings})


def _write(found: ComparisonResults, out: Path, settings: dict[str, Any]) -> None:
    write_json(out / "compare.json", {**found.to_dict(), "settings": settings})
    with replacing(out / "table.md") as temporary:
        temporary.write_text(found.table(), encoding="utf-8", newline="\n")
    found.picture().save(out / "compare.svg")
