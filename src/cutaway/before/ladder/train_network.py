"""The two networks of the ladder: the same recipe, training loop, tokens and time for both, and about as many weights.

    steps = steps_for("transformer", text, seconds=120, clock=time.perf_counter)
    network, flops, taken = train_network("transformer", text, out, steps=steps, seconds=120)

A few trial steps show how many fit into the time; so the whole run can be planned, and the learning rate falls as it
should. If the machine slows down, the run stops when the time is over.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, log
from pathlib import Path
from signal import SIGTERM
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from cutaway.before.ladder.split_text import Tokenised
from cutaway.before.ngrams.counts import Ids
from cutaway.before.ngrams.predictor import Predictor
from cutaway.checkpoints import load, save
from cutaway.errors import InputError
from cutaway.evaluation.perplexity import windows_of
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel
from cutaway.training.machine import choose_device
from cutaway.training.presets import recipe_for
from cutaway.training.recipe import Recipe
from cutaway.training.run_curves import read_run
from cutaway.training.trainer import Trainer

NETWORKS = ("lstm", "transformer")
WINDOW = 128  # context length of a network in training and scoring
TRIED, WARM = 6, 2  # trial steps, and how many of them are not timed
SPARE = 0.85  # of the time is planned for steps; the rest is for evaluating and saving
MOST = 20_000  # steps
MEASURED = 4  # evaluations and checkpoints in a run
BATCH = 16  # windows that are scored at once

# About as many weights in the layers of both, 12 d² a block and 8 d² an LSTM layer; a GPU has time for larger ones.
LSTM = "model={{size='lstm', n_layers={}, d_model={}, dropout=0.1}}"
SMALL: dict[str, tuple[str, ...]] = {
    "transformer": ("model.n_layers=2", "model.d_model=128", "model.d_ff=512"),
    "lstm": (LSTM.format(1, 224),),
}
LARGE: dict[str, tuple[str, ...]] = {
    "transformer": ("train.tokens=16384",),
    "lstm": (LSTM.format(2, 448), "train.tokens=16384"),
}
Clock = Callable[[], float]


class Network(Predictor):
    """A network as a `Predictor`. It sees at most `window` tokens, and at least half as many if there are."""

    def __init__(self, model: DecoderModel, end: int, window: int = WINDOW) -> None:
        self.model, self.end, self.window = model.eval(), end, window
        self.vocab_size = int(model.config.to_dict()["vocab_size"])

    @torch.no_grad()
    def log_probabilities(self, ids: Ids) -> Float64[np.ndarray, " token"]:
        """ln p of each token; the first has no context, and all tokens are equally likely."""
        found = [np.full(min(1, len(ids)), -log(self.vocab_size))]
        windows = list(windows_of([np.asarray(ids, np.int64)], self.window, max(1, self.window // 2)))
        for lo in range(0, len(windows), BATCH):
            some = windows[lo : lo + BATCH]
            rows = np.zeros((len(some), max(len(one.ids) for one in some) - 1), np.int64)
            for row, one in zip(rows, some, strict=True):
                row[: len(one.ids) - 1] = one.ids[:-1]  # padded on the right, which causal attention ignores
            log_p = self._log_p(rows)
            for row, one in zip(log_p, some, strict=True):
                places = np.arange(len(one.ids) - 1 - one.scored, len(one.ids) - 1)
                found.append(row[places, one.ids[-one.scored :]])
        return np.concatenate(found)

    @torch.no_grad()
    def next_probabilities(self, past: Ids | Sequence[int]) -> Float64[np.ndarray, " vocab"]:
        if not len(past):
            return np.full(self.vocab_size, 1 / self.vocab_size)
        rows = np.asarray(past[-self.window :], np.int64)[None]
        return np.exp(self._log_p(rows)[0, -1])

    def _log_p(self, rows: Any) -> Float64[np.ndarray, "row place vocab"]:
        logits = self.model(torch.from_numpy(rows).to(self.model.device))
        check_scores(self.model, logits)
        return logits.double().log_softmax(-1).cpu().numpy()


@dataclass
class RunTimer:
    """Follows a run and stops it when its time is over. `clock` gives the time in seconds."""

    seconds: float
    clock: Clock = time.perf_counter
    progress: Callable[[float], None] = lambda done: None
    began: float = 0.0
    late: bool = False
    laps: list[float] = field(default_factory=list)
    trainer: Trainer | None = None

    def __post_init__(self) -> None:
        self.began = self.clock()

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] != "step":
            return
        self.laps.append(self.clock())
        spent = self.laps[-1] - self.began
        self.progress(event["step"] / event["steps"])
        if spent >= self.seconds and event["step"] < event["steps"] and self.trainer is not None:
            self.late = True
            self.trainer.interruption.signal = SIGTERM

    def per_step(self) -> float:
        """Seconds per step, without the first ones."""
        return (self.laps[-1] - self.laps[WARM - 1]) / (len(self.laps) - WARM)


def network_recipe(name: str, text: Tokenised, steps: int, changes: Sequence[str] = ()) -> Recipe:
    """The preset for text, adapted to this text; `changes` are those of --set."""
    window = min(WINDOW, len(text.train) - 2, text.n_valid - 1)
    if window < 1:
        raise InputError("too little text: training and validation need at least two tokens each")
    size = LARGE if choose_device("auto").type == "cuda" else SMALL
    valid = json.dumps([str(path) for path in text.files("valid")])
    usual = (
        f"name={name}", f"tokenizer={{file={json.dumps(str(text.tokenizer_folder))}}}",
        f"data.valid={valid}", "data.valid_share=0.0", "data.apart=false", f"data.seq_len={window}",
        f"train.steps={steps}", "train.tokens=2048", "optimizer.rate=3e-3",
        f"schedule.warmup={min(100, steps // 10)}", "evaluate.patience=0", "evaluate.samples=0", "evaluate.log=1",
        f"evaluate.every={-(-steps // MEASURED)}", f"checkpoint.every={-(-steps // MEASURED)}",
    )  # fmt: skip
    return recipe_for(text.files("train"), [*usual, *size[name], *changes])


def steps_for(name: str, text: Tokenised, seconds: float, clock: Clock, changes: Sequence[str] = ()) -> int:
    """How many steps fit into the time, estimated from a few trial steps."""
    recipe = network_recipe(name, text, TRIED, [*changes, f"train.steps={TRIED}", "data.valid=[]"])
    timer = RunTimer(inf, clock)
    with tempfile.TemporaryDirectory() as folder:
        _run(recipe, Path(folder), timer, resume=False)
    left = seconds - (clock() - timer.began)
    return int(min(max(SPARE * left / max(timer.per_step(), 1e-9), 1), MOST))


def train_network(
    name: str,
    text: Tokenised,
    out: Path,
    *,
    steps: int,
    seconds: float = inf,
    clock: Clock = time.perf_counter,
    changes: Sequence[str] = (),
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Network, float, int]:
    """Returns the network, the floating-point operations of its training, and the number of steps.

    An interrupted run in `out` is continued; Ctrl-C leaves one there.
    """
    recipe, timer = network_recipe(name, text, steps, changes), RunTimer(seconds, clock, progress)
    trainer, finished = _run(recipe, out, timer, resume=(out / "run" / "log.jsonl").exists())
    if not finished and not timer.late:
        raise KeyboardInterrupt
    if not finished:
        save(trainer.run.model, out, text.tokenizer)
    model = load(out, device=choose_device("auto"))
    assert isinstance(model, DecoderModel)
    return Network(model, text.end, recipe.data.seq_len), trainer.flops, trainer.run.step


def seconds_before(out: Path) -> float:
    """The seconds that the run in a folder has taken so far, according to its log."""
    begun = (out / "run" / "log.jsonl").exists()
    return float(read_run(out).last.get("seconds", 0.0)) if begun else 0.0


def _run(recipe: Recipe, out: Path, timer: RunTimer, *, resume: bool) -> tuple[Trainer, bool]:
    trainer = timer.trainer = Trainer(recipe, out, [timer])
    with trainer.open(resume):
        return trainer, trainer.run_to_end().finished
