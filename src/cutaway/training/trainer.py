"""A run, from its recipe to a model folder: steps, validation, checkpoints, and the model at the end."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cutaway.errors import CheckpointError
from cutaway.files import damage, read_json, write_json
from cutaway.training.average import weights_of
from cutaway.training.checkpoint import Checkpoint, checkpoints, clean, keep_newest, newest
from cutaway.training.datasets import prepare
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.feed import Feed, StepBatch
from cutaway.training.interruption import Interruption
from cutaway.training.loop import StepResult, look_back, take_step
from cutaway.training.machine import choose_device, machine_name, settings
from cutaway.training.parallel import join_group
from cutaway.training.recipe import Recipe
from cutaway.training.resume import depends_on, refuse_another_run, restore, save_run
from cutaway.training.run_folder import RunFolder
from cutaway.training.run_log import Listener, RunLog, as_floats, plain_values
from cutaway.training.schedule import rate_at
from cutaway.training.speed import FlopCounter, Lap, peak_flops
from cutaway.training.start_run import start_run
from cutaway.training.starting_weights import refuse_another_tokenizer, refuse_unknown_model, starting_tokenizer
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


class Trainer:
    """One run in one folder.

    trainer = Trainer(recipe, Path("model"), [print])
    with trainer.open(resume=False):
        outcome = trainer.run_to_end()
    """

    def __init__(self, recipe: Recipe, out: Path, listeners: list[Listener]) -> None:
        self.recipe, self.listeners, self.folder = recipe, listeners, RunFolder(out)
        self.interruption = Interruption()
        self.device = choose_device(recipe.train.device)
        self.seconds_before, self.flops, self.scores = 0.0, 0.0, {}  # type: float, float, dict[str, float]

    # --- opening -----------------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, resume: bool) -> Iterator[None]:
        """Everything that a run needs: the lock, the data, the model, and the checkpoint to go on from."""
        refuse_unknown_model(self.recipe)
        with ExitStack() as stack:
            self.group = join_group(self.device)
            if self.group.leads:
                self.folder.check(resume)
                stack.enter_context(self.folder.lock())
                self._take_folder(resume)
            stack.enter_context(settings(self.recipe, self.device))
            self.log = RunLog(self.folder.log, self.listeners) if self.group.leads else RunLog(None, [])
            stack.callback(self.log.close)
            self.dataset = self._read_data()
            self.run, self.new_weights = start_run(self.recipe, self.dataset, self.group, self.device, self._note)
            found = self._find_checkpoint() if resume else None
            self._log_start(0 if found is None else found.step)
            if found is not None:
                self._continue_from(found)
            if self.group.leads and self.run.step == 0:
                write_json(self.folder.begun, self._depends_on())
            # notes for listeners alone: a line of the file may be half written when a signal comes
            stack.enter_context(self.interruption.listen(lambda text: self.log.tell({"event": "note", "text": text})))
            yield

    def _take_folder(self, resume: bool) -> None:
        """Once the folder is locked: a new run replaces no other, and leaves its recipe for `--resume`."""
        clean(self.folder.checkpoints)
        clean(self.folder.out)
        self.folder.check(resume, locked=True)
        if not resume:
            self.folder.forget()
            self.folder.write_recipe(self.recipe)

    def _read_data(self) -> TrainingData:
        recipe = self.recipe
        own = starting_tokenizer(recipe)
        dataset = prepare(recipe, own, self._note)
        refuse_another_tokenizer(recipe, own, dataset.tokenizer)
        for note in dataset.notes:
            self._note(note)
        if recipe.schedule.warmup > (steps := recipe.train.steps):
            self._note(
                f"schedule.warmup={recipe.schedule.warmup} is more than train.steps={steps}: the rate never "
                f"reaches optimizer.rate={recipe.optimizer.rate}; set schedule.warmup to about {steps // 10}"
            )
        return dataset

    def _depends_on(self) -> dict[str, Any]:
        return depends_on(self.recipe, self.dataset, self.run.model, self.group.world)

    def _log_start(self, step: int) -> None:
        """The first line of a run's log, or of the part after `step`."""
        train = self.dataset.train
        self.log({
            "event": "start", "name": self.recipe.name, "parameters": self.run.model.n_parameters(),
            "device": str(self.device), "machine": machine_name(self.device), "steps": self.recipe.train.steps,
            "examples": train.n_examples, "steps_per_epoch": train.steps, "drawn": len(self.new_weights),
            "step": step, "threads": torch.get_num_threads(), "unit": self._unit,
        })  # fmt: skip

    def _find_checkpoint(self) -> Checkpoint | None:
        """The newest whole checkpoint; before there was one, the run starts at step 0."""
        if not checkpoints(self.folder.checkpoints):
            if self.folder.begun.exists():
                with damage(self.folder.begun, "is damaged, remove it"):
                    refuse_another_run(read_json(self.folder.begun), self._depends_on(), self.folder.out)
            self._note("there was no checkpoint yet: the run starts at step 0")
            return None
        found = newest(self.folder.checkpoints, self._note)
        if found is None:
            raise CheckpointError(
                f"no checkpoint in {self.folder.checkpoints} is whole: remove that folder, and start the run again"
            )
        refuse_another_run(found.state["depends_on"], self._depends_on(), self.folder.out)
        return found

    def _continue_from(self, found: Checkpoint) -> None:
        """Restores everything as it was after that step."""
        restore(self.run, found, self.device)
        state = found.state
        self.seconds_before, self.flops = state["seconds"], state["flops"]
        self.scores = as_floats(state["scores"])
        self.group.wait()  # until all processes have read it
        if self.group.leads:
            self._remove_old_checkpoints()  # a kill may have come between a checkpoint and the removal of older ones
        self.log({"event": "resume", "step": self.run.step, "from": found.path.name})
        if state["threads"] != torch.get_num_threads():
            self._note(f"this run had {state['threads']} threads, now {torch.get_num_threads()}: its bits may differ")

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run_to_end(self) -> Outcome:
        """Steps, validation, checkpoints; then the model folder."""
        recipe, run, steps = self.recipe, self.run, self.recipe.train.steps
        feed = Feed(
            self.dataset.train, run.objective, seed=recipe.seed, accumulate=recipe.train.accumulate,
            device=self.device, workers=recipe.train.workers, rank=self.group.rank, world=self.group.world,
        )  # fmt: skip
        self.started = time.perf_counter()
        self.peak = peak_flops(self.device, run.autocast or torch.float32)
        self.lap, self.count_flops = Lap(run.tokens), FlopCounter(run.model, run.objective)
        behind = 16 if self.device.type == "cuda" else 0
        interrupted = False
        stop_early = self._patience_is_over()  # a resumed run may have stopped early
        ended = self.folder.is_done()
        if ended:
            with damage(self.folder.done, "is damaged, remove it"):
                self.scores = as_floats(read_json(self.folder.done).get("scores", self.scores))
            self._note(f"this run is done: its model is in {self.folder.out}")
        with feed.ahead(run.step, run.step if ended or stop_early else steps) as batches:
            for batch in batches:
                result = take_step(run, batch, rate_at(recipe.schedule, run.step + 1, steps))
                self._count(batch)
                look_back(run, result, behind=behind, complain=self.log)
                done = run.step == steps
                if run.step % recipe.evaluate.log == 0 or done or run.step == 1:  # the first shows that it works
                    self._log_step(result)
                if run.step % recipe.evaluate.every == 0 or done:
                    stop_early = self._validate_and_log()
                best_now = recipe.evaluate.keep_best and run.best_step == run.step
                interrupted = not done and self._is_interrupted()
                if run.step % recipe.checkpoint.every == 0 or done or stop_early or best_now or interrupted:
                    self._save()
                if stop_early or interrupted:
                    break
        if interrupted:
            return self._end("interrupted")
        if self.group.leads and not ended:
            self._write_model()
        self.group.wait()
        return self._end("stopped early" if stop_early else "done")

    def _end(self, reason: str) -> Outcome:
        finished = reason != "interrupted"
        scores = {"scores": self.scores} if finished else {}
        self.log({"event": "end", "step": self.run.step, "reason": reason, "seconds": self._seconds(), **scores})
        exit_code = 0 if finished else self.interruption.exit_code
        return Outcome(self.run.step, finished, exit_code, self.scores, self._seconds())

    def _is_interrupted(self) -> bool:
        """Whether the run was asked to stop; several processes agree on it now and then, or one would go on alone."""
        if self.group.world == 1:
            return bool(self.interruption)
        return self.run.step % self.recipe.evaluate.log == 0 and self.group.agree(bool(self.interruption), self.device)

    def _patience_is_over(self) -> bool:
        patience = self.recipe.evaluate.patience
        return patience > 0 and self.run.waited >= patience

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.started

    @property
    def _unit(self) -> str:
        return "tokens" if self.dataset.tokenizer is not None else "pictures"

    def _count(self, batch: StepBatch) -> None:
        """Adds up the operations."""
        flops = self.count_flops(batch)
        self.flops += flops * self.group.world  # the other processes do as many
        self.lap.flops += flops

    def _log_step(self, result: StepResult) -> None:
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

    def _validate_and_log(self) -> bool:
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
        return self._patience_is_over()

    def _validate(self) -> dict[str, float]:
        assert self.dataset.valid is not None
        run, batches = self.run, self.recipe.evaluate.batches
        found = validate(run.model, run.objective, self.dataset.valid, batches=batches, autocast=run.autocast)
        return found | bits(found, self.dataset)

    def _save(self) -> None:
        look_back(self.run, None, behind=0, complain=self.log)
        state = {
            "depends_on": self._depends_on(), "seconds": self._seconds(), "flops": self.flops,
            "scores": plain_values(self.scores), "threads": torch.get_num_threads(),
        }  # fmt: skip
        saved = save_run(self.run, self.folder.checkpoints, state, self.recipe.optimizer.rate)
        if not saved:
            return
        self._remove_old_checkpoints()
        self.log({"event": "checkpoint", "step": self.run.step, "seconds": self._seconds()})
        self.lap.start(self.run.tokens)

    def _remove_old_checkpoints(self) -> None:
        c, folder = self.recipe.checkpoint, self.folder.checkpoints
        keep_newest(folder, max(c.keep, self.recipe.train.average), self.run.step, self.run.best_step, c.every)

    def _write_model(self) -> None:
        """The model folder, and the note that it is complete."""
        from cutaway.training.finish import choose_weights, write_model_folder

        weights, measured = choose_weights(self.run, self.recipe, self.folder.checkpoints, self._note)
        if not measured and self.dataset.valid is not None:
            self.scores = self._validate()
        write_model_folder(self.folder.out, self.run, self.recipe, self.dataset.tokenizer, {
            "step": self.run.step, "tokens": self.run.tokens, "seconds": self._seconds(), "flops": self.flops,
            "skipped": self.run.skipped, "scores": self.scores, "machine": machine_name(self.device),
            "weights": weights, "unit": self._unit,
        }, self._note)  # fmt: skip
        write_json(self.folder.done, {"step": self.run.step, "scores": plain_values(self.scores)})

    def _note(self, text: str) -> None:
        self.log({"event": "note", "text": text})
