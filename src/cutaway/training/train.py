"""A run, from its recipe to a model folder.

OUT/            the model folder: config.json, model.safetensors, tokenizer.json, README.md, recipe.toml
OUT/run/        what it takes to go on: begun.json (what the run depends on), checkpoints/, log.jsonl, lock; done.json
                when the model folder is whole
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cutaway.arguments import checked
from cutaway.checkpoints.tensors import SINGLE
from cutaway.errors import CheckpointError, InputError
from cutaway.files import read_json, write_json
from cutaway.model.finite import not_finite
from cutaway.training.average import MovingAverage, weights_of
from cutaway.training.checkpoint import Checkpoint, checkpoints, clean, keep_newest, newest, write_checkpoint
from cutaway.training.compile import compile_blocks, compile_loss
from cutaway.training.cuda_graphs import Captured
from cutaway.training.datasets import prepare
from cutaway.training.datasets.shared import TrainingData
from cutaway.training.feed import Feed
from cutaway.training.finish import choose_weights, write_model_folder
from cutaway.training.lock import Interruption, check_run_folder, locked_run
from cutaway.training.loop import Run, StepResult, checkpointed, look_back, loss_function, take_step
from cutaway.training.lora import add_lora, freeze
from cutaway.training.machine import Lap, chosen_device, machine_name, peak_flops, settings, step_flops
from cutaway.training.optimizer import Optimizer
from cutaway.training.parallel import join_group
from cutaway.training.recipe import Recipe, read_recipe
from cutaway.training.resume import depends_on, refuse_another_run, restore
from cutaway.training.run_log import Listener, RunLog, plain_values
from cutaway.training.schedule import rate_at
from cutaway.training.starting_weights import (
    refuse_another_tokenizer,
    refuse_long_rows,
    refuse_unknown_model,
    starting_model,
    starting_tokenizer,
)
from cutaway.training.validation import bits, samples, validate

LOSSES_ARE_BEST_LOW = ("loss", "perplexity", "bits_per_byte")


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    finished: bool
    exit_code: int
    scores: dict[str, float]
    seconds: float


@checked
def train(
    recipe: Recipe | Path | str,
    out: Path | str,
    *,
    resume: bool = False,
    listeners: list[Listener] | None = None,
) -> Outcome:
    """Trains as a recipe, or the TOML file that holds it, says, and leaves a model folder in `out`.

    With `resume` it goes on where a run stopped. Listeners are told every event of the run log.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    trainer = Trainer(recipe, Path(out), listeners or [])
    with trainer.opened(resume):
        return trainer.run_to_the_end()


class Trainer:
    """One run in one folder."""

    def __init__(self, recipe: Recipe, out: Path, listeners: list[Listener]) -> None:
        self.recipe, self.out, self.listeners = recipe, out, listeners
        self.folder, self.log_file = out / "run" / "checkpoints", out / "run" / "log.jsonl"
        self.begun, self.done = out / "run" / "begun.json", out / "run" / "done.json"
        self.interruption = Interruption()
        self.device = chosen_device(recipe.train.device)
        self.seconds_before, self.flops, self.scores = 0.0, 0.0, {}  # type: float, float, dict[str, float]
        self._flops_of: dict[Any, int] = {}

    # --- beginning ---------------------------------------------------------------------------------------------------

    def opened(self, resume: bool) -> ExitStack:
        """Everything that a run needs: the lock, the data, the model, and the checkpoint to go on from."""
        stack = ExitStack()
        refuse_unknown_model(self.recipe)
        with ExitStack() as guard:
            self.group = join_group(self.device)
            if self.group.leads:
                check_run_folder(self.out, resume)
                guard.enter_context(locked_run(self.out / "run"))
                clean(self.folder)
                clean(self.out)
                self._refuse(resume)
            guard.enter_context(settings(self.recipe, self.device))
            self.log = RunLog(self.log_file, self.listeners) if self.group.leads else RunLog(None, [])
            guard.callback(self.log.close)
            own = starting_tokenizer(self.recipe)
            self.dataset: TrainingData = prepare(self.recipe, own, self._note)
            refuse_another_tokenizer(self.recipe, own, self.dataset.tokenizer)
            for note in self.dataset.notes:
                self._note(note)
            if self.recipe.schedule.warmup > (steps := self.recipe.train.steps):
                self._note(
                    f"schedule.warmup={self.recipe.schedule.warmup} is more than train.steps={steps}: the rate never "
                    f"reaches optimizer.rate={self.recipe.optimizer.rate}; set schedule.warmup to about {steps // 10}"
                )
            self.run = self._new_run()
            found = self._found() if resume else None
            self._begin(0 if found is None else found.step)
            if found is not None:
                self._go_on(found)
            if self.group.leads and self.run.step == 0:
                write_json(self.begun, self._depends_on())
            guard.enter_context(self.interruption.listening(self._tell))
            stack = guard.pop_all()
        return stack

    def _refuse(self, resume: bool) -> None:
        """Now that nobody else trains there: a new run writes over no other, and only what is there goes on."""
        check_run_folder(self.out, resume, locked=True)
        if resume and not checkpoints(self.folder) and self._is_done():
            raise CheckpointError(f"the run in {self.out} is done, and its checkpoints are gone: nothing can go on")
        if not resume:
            self.begun.unlink(missing_ok=True)
            self.done.unlink(missing_ok=True)

    def _new_run(self) -> Run:
        recipe, t = self.recipe, self.recipe.train
        torch.manual_seed(recipe.seed)
        model, self.drawn = starting_model(recipe, self.dataset.numbers, self.device)
        refuse_long_rows(recipe, self.dataset, model)
        if t.lora_rank:
            add_lora(model, t.lora_rank, t.lora_alpha, t.lora_parts)
        freeze(model, t.freeze)
        if t.compile == "blocks":
            compile_blocks(model)
        if t.checkpointing:
            checkpointed(model)
        model.train()
        self.group.same_start(model)
        loss_of = loss_function(self.dataset.objective)
        autocast = torch.bfloat16 if t.precision == "bf16" else None
        if t.compile not in ("no", "blocks"):
            loss_of = compile_loss(loss_of, t.compile)
        return Run(
            model,
            self.dataset.objective,
            Optimizer(model, recipe.optimizer),
            loss_of,
            autocast=autocast,
            clip=recipe.optimizer.clip,
            spike=t.spike,
            average=MovingAverage(model, t.ema) if t.ema else None,
            captured=Captured(model, loss_of, autocast) if self._captures() else None,
            group=self.group,
            seed=recipe.seed,
        )

    def _captures(self) -> bool:
        t = self.recipe.train
        wanted = t.capture and self.device.type == "cuda"
        if wanted and t.checkpointing:  # it saves the state of the random numbers, which nobody may read in a graph
            self._note("train.checkpointing: the passes are not recorded as graphs; small models run slower for it")
        return wanted and not t.checkpointing

    def _depends_on(self) -> dict[str, Any]:
        return depends_on(self.recipe, self.dataset, self.run.model, self.group.world)

    def _begin(self, step: int) -> None:
        """The first line of a run's log, or of what follows after `step`."""
        train = self.dataset.train
        self.log({
            "event": "start", "name": self.recipe.name, "parameters": self.run.model.n_parameters(),
            "device": str(self.device), "machine": machine_name(self.device), "steps": self.recipe.train.steps,
            "examples": train.n_examples, "steps_per_epoch": train.steps, "drawn": len(self.drawn),
            "step": step, "threads": torch.get_num_threads(),
            "unit": "tokens" if self.dataset.tokenizer is not None else "pictures",
        })  # fmt: skip

    def _found(self) -> Checkpoint | None:
        """The newest whole checkpoint; before there was one, the run starts at step 0."""
        if not checkpoints(self.folder):
            if self.begun.exists():
                refuse_another_run(read_json(self.begun), self._depends_on(), self.out)
            self._note("there was no checkpoint yet: the run starts at step 0")
            return None
        found = newest(self.folder, self._note)
        if found is None:
            raise CheckpointError(
                f"no checkpoint in {self.folder} is whole: remove that folder, and start the run anew"
            )
        refuse_another_run(found.state["depends_on"], self._depends_on(), self.out)
        return found

    def _go_on(self, found: Checkpoint) -> None:
        """Puts everything back as it was after that step."""
        restore(self.run, found, self.device)
        state = found.state
        self.seconds_before, self.flops = state["seconds"], state["flops"]
        self.scores = _numbers(state["scores"])
        self.group.wait()  # until everybody has read it
        if self.group.leads:
            self._keep()  # a kill may have come between a checkpoint and the removal of older ones
        self.log({"event": "resume", "step": self.run.step, "from": found.path.name})
        if state["threads"] != torch.get_num_threads():
            self._note(f"this run had {state['threads']} threads, now {torch.get_num_threads()}: its bits may differ")

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run_to_the_end(self) -> Outcome:
        """Steps, measurements, checkpoints; then the model folder."""
        recipe, run, steps = self.recipe, self.run, self.recipe.train.steps
        feed = Feed(
            self.dataset.train, run.objective, seed=recipe.seed, accumulate=recipe.train.accumulate,
            device=self.device, workers=recipe.train.workers, rank=self.group.rank, world=self.group.world,
        )  # fmt: skip
        self.started = time.perf_counter()
        self.peak = peak_flops(self.device, run.autocast or torch.float32)
        self.lap = Lap(run.tokens)
        behind = 16 if self.device.type == "cuda" else 0
        interrupted = False
        stop_early = self._waited_enough()  # a resumed run may have stopped early
        ended = self._is_done()
        if ended:
            self.scores = _numbers(read_json(self.done).get("scores", self.scores))
            self._note(f"this run is done: its model is in {self.out}")
        with feed.ahead(run.step, run.step if ended or stop_early else steps) as batches:
            for batch in batches:
                result = take_step(run, batch, rate_at(recipe.schedule, run.step + 1, steps))
                self._count(batch)
                look_back(run, result, behind=behind, complain=self.log)
                done = run.step == steps
                if run.step % recipe.evaluate.log == 0 or done or run.step == 1:  # the first says that it goes
                    self._report(result)
                if run.step % recipe.evaluate.every == 0 or done:
                    stop_early = self._measure()
                best_now = recipe.evaluate.keep_best and run.best_step == run.step
                interrupted = not done and self._is_interrupted()
                if run.step % recipe.checkpoint.every == 0 or done or stop_early or best_now or interrupted:
                    self._save()
                if stop_early or interrupted:
                    break
        if interrupted:
            self.log({"event": "end", "step": run.step, "reason": "interrupted", "seconds": self._seconds()})
            return Outcome(run.step, False, self.interruption.exit_code, self.scores, self._seconds())
        if self.group.leads and not ended:
            self._finish()
        self.group.wait()
        self.log({"event": "end", "step": run.step, "reason": "stopped early" if stop_early else "done",
                  "seconds": self._seconds(), "scores": self.scores})  # fmt: skip
        return Outcome(run.step, True, 0, self.scores, self._seconds())

    def _is_interrupted(self) -> bool:
        """Whether somebody asked the run to stop; several processes agree on it now and then, or one would go on."""
        if self.group.world == 1:
            return bool(self.interruption)
        return self.run.step % self.recipe.evaluate.log == 0 and self.group.agree(bool(self.interruption), self.device)

    def _waited_enough(self) -> bool:
        patience = self.recipe.evaluate.patience
        return patience > 0 and self.run.waited >= patience

    def _is_done(self) -> bool:
        """Whether a resumed run has made its model folder before, and it is still there."""
        return self.done.exists() and all((self.out / name).exists() for name in ("config.json", SINGLE))

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.started

    def _count(self, batch: Any) -> None:
        """Adds up the operations; each shape is counted once."""
        for part in batch.parts:
            shape = tuple((name, tuple(tensor.shape)) for name, tensor in part.items())
            if shape not in self._flops_of:
                self._flops_of[shape] = step_flops(self.run.model, self.run.objective, part)
            self.flops += self._flops_of[shape] * self.group.world  # the others have as many to do
            self.lap.flops += self._flops_of[shape]

    def _report(self, result: StepResult) -> None:
        terms = result.terms.tolist()  # waits for the device
        tokens, flops = self.lap.turn(self.run.tokens)
        named = dict(zip(self.run.objective.targets, terms, strict=True))
        self.log({
            "event": "step", "step": self.run.step, "steps": self.recipe.train.steps, "loss": sum(terms),
            **({f"loss_{term}": value for term, value in named.items()} if len(named) > 1 else {}),
            "rate": rate_at(self.recipe.schedule, self.run.step, self.recipe.train.steps) * self.recipe.optimizer.rate,
            "length": result.length.item(), "tokens": self.run.tokens, "tokens_per_second": tokens,
            "share_of_peak": flops / self.peak, "seconds": self._seconds(), "skipped": self.run.skipped,
        })  # fmt: skip

    def _measure(self) -> bool:
        """The validation loss and scores; whether the run should stop early."""
        run, e = self.run, self.recipe.evaluate
        look_back(run, None, behind=0, complain=self.log)
        if self.dataset.valid is None:
            return False
        with weights_of(run.model, run.average):
            found = self._validate()
            written = samples(run.model, self.dataset, e.samples, e.prompt)
        value = found[e.metric]
        sign = -1 if e.metric.startswith(LOSSES_ARE_BEST_LOW) else 1
        better = value == value and (run.best is None or sign * value > sign * run.best)
        if better:
            run.best, run.best_step, run.waited = value, run.step, 0
            self.scores = found
        else:
            run.waited += 1
        if not e.keep_best:
            self.scores = found
        self.log({
            "event": "evaluate", "step": run.step, **found, "best": better, "samples": written,
            "seconds": self._seconds(),
        })  # fmt: skip
        self.lap.start(self.run.tokens)
        return self._waited_enough()

    def _validate(self) -> dict[str, float]:
        assert self.dataset.valid is not None
        run, batches = self.run, self.recipe.evaluate.batches
        found = validate(run.model, run.objective, self.dataset.valid, batches=batches, autocast=run.autocast)
        return found | bits(found, self.dataset)

    def _save(self) -> None:
        run = self.run
        look_back(run, None, behind=0, complain=self.log)
        if damaged := not_finite(run.model):
            raise InputError(
                f"step {run.step} left weights that are no numbers: {damaged[0]}. Nothing is saved: a smaller "
                f"optimizer.rate than {self.recipe.optimizer.rate:g}, weight_decay or matrix_rate may help"
            )
        if not self.group.leads:
            return
        tensors: dict[str, dict[str, torch.Tensor]] = {
            "weights": dict(run.model.named_parameters()),
            "optimizer": dict(sorted(run.optimizer.tensors().items())),  # the same bytes every time
        }
        if run.average is not None:
            tensors["average"] = run.average.weights
        state = {
            **run.counters(), "best": plain_values(run.best), "depends_on": self._depends_on(),
            "seconds": self._seconds(), "flops": self.flops, "scores": plain_values(self.scores),
            "threads": torch.get_num_threads(),
        }  # fmt: skip
        write_checkpoint(self.folder, run.step, tensors, state)
        self._keep()
        self.log({"event": "checkpoint", "step": run.step, "seconds": self._seconds()})
        self.lap.start(self.run.tokens)

    def _keep(self) -> None:
        c = self.recipe.checkpoint
        keep_newest(self.folder, max(c.keep, self.recipe.train.average), self.run.step, self.run.best_step, c.every)

    def _finish(self) -> None:
        """The model folder, and the note that it is whole."""
        weights, measured = choose_weights(self.run, self.recipe, self.folder, self._note)
        if not measured and self.dataset.valid is not None:
            self.scores = self._validate()
        write_model_folder(self.out, self.run, self.recipe, self.dataset.tokenizer, {
            "step": self.run.step, "tokens": self.run.tokens, "seconds": self._seconds(), "flops": self.flops,
            "skipped": self.run.skipped, "scores": self.scores, "machine": machine_name(self.device),
            "weights": weights, "unit": "tokens" if self.dataset.tokenizer is not None else "pictures",
        }, self._note)  # fmt: skip
        write_json(self.done, {"step": self.run.step, "scores": plain_values(self.scores)})

    def _note(self, text: str) -> None:
        self.log({"event": "note", "text": text})

    def _tell(self, text: str) -> None:
        """A note to those who listen, not to the file: a line may be half written when a signal comes."""
        self.log.tell({"event": "note", "text": text})


def _numbers(scores: dict[str, Any]) -> dict[str, float]:
    """Scores as they were before `plain`."""
    return {name: float(value) for name, value in scores.items()}
