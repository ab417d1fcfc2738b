"""A run, from its recipe to a model folder.

OUT/            the model folder: config.json, model.safetensors, tokenizer.json, README.md, recipe.toml
OUT/run/        what it takes to go on: checkpoints/, log.jsonl, lock
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cutaway.checkpoints import save
from cutaway.data.corpus import digest
from cutaway.errors import CheckpointError, ConfigError
from cutaway.files import replacing
from cutaway.model.model import Model
from cutaway.training.average import MovingAverage, average_of, weights_of
from cutaway.training.card import model_card
from cutaway.training.feed import Feed
from cutaway.training.guard import Interruption, only_trainer
from cutaway.training.log import Listener, RunLog
from cutaway.training.loop import Run, StepResult, checkpointed, look_back, loss_function, take_step
from cutaway.training.lora import add_lora, freeze, merge_lora
from cutaway.training.machine import Lap, chosen_device, machine_name, peak_flops, settings, step_flops
from cutaway.training.material import prepare
from cutaway.training.material.common import Material
from cutaway.training.measure import bits, samples, validate
from cutaway.training.optimizer import Optimizer
from cutaway.training.parallel import join_group
from cutaway.training.recipe import Recipe, differences, to_toml
from cutaway.training.schedule import rate_at
from cutaway.training.start import starting_model, starting_tokenizer
from cutaway.training.state import (
    Checkpoint,
    checkpoints,
    clean,
    keep,
    newest,
    random_state,
    read_checkpoint,
    restore_random_state,
    write_checkpoint,
)

LOSSES_ARE_BEST_LOW = ("loss", "perplexity", "bits_per_byte")


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    finished: bool
    exit_code: int
    scores: dict[str, float]
    seconds: float


def train(recipe: Recipe, out: Path, *, resume: bool = False, listeners: list[Listener] | None = None) -> Outcome:
    """Trains as the recipe says and leaves a model folder in `out`; with `resume`, goes on where a run stopped."""
    trainer = Trainer(recipe, out, listeners or [])
    with trainer.opened(resume):
        return trainer.run_to_the_end()


class Trainer:
    """One run in one folder."""

    def __init__(self, recipe: Recipe, out: Path, listeners: list[Listener]) -> None:
        self.recipe, self.out, self.listeners = recipe, out, listeners
        self.folder = out / "run" / "checkpoints"
        self.interruption = Interruption()
        self.device = chosen_device(recipe.train.device)
        self.seconds_before, self.flops, self.scores = 0.0, 0.0, {}  # type: float, float, dict[str, float]
        self._flops_of: dict[Any, int] = {}

    # --- beginning ---------------------------------------------------------------------------------------------------

    def opened(self, resume: bool) -> ExitStack:
        """Everything that a run needs: the lock, the data, the model, and the checkpoint to go on from."""
        stack = ExitStack()
        with ExitStack() as guard:
            self.group = join_group(self.device)
            if self.group.leads:
                guard.enter_context(only_trainer(self.out / "run"))
                clean(self.folder)
            self._refuse_to_overwrite(resume)
            guard.enter_context(settings(self.recipe, self.device))
            self.log = RunLog(self.out / "run" / "log.jsonl" if self.group.leads else None, self.listeners)
            guard.callback(self.log.close)
            self.material: Material = prepare(
                self.recipe, starting_tokenizer(self.recipe), lambda text: self.log({"event": "note", "text": text})
            )
            for note in self.material.notes:
                self.log({"event": "note", "text": note})
            self.run = self._new_run()
            if resume:
                self._go_on()
            guard.enter_context(self.interruption.listening())
            stack = guard.pop_all()
        return stack

    def _refuse_to_overwrite(self, resume: bool) -> None:
        there = bool(checkpoints(self.folder))
        if there and not resume:
            raise CheckpointError(f"{self.out} holds a run already: continue it with --resume, or choose another --out")

    def _new_run(self) -> Run:
        recipe, t = self.recipe, self.recipe.train
        torch.manual_seed(recipe.seed)
        model, drawn = starting_model(recipe, self.material.numbers, self.device)
        if t.lora_rank:
            add_lora(model, t.lora_rank, t.lora_alpha, t.lora_parts)
        freeze(model, t.freeze)
        if t.checkpointing:
            checkpointed(model)
        model.train()
        self.group.same_start(model)
        loss_of = loss_function(self.material.objective)
        if t.compile != "no":
            mode = None if t.compile == "default" else t.compile
            loss_of = torch.compile(loss_of, mode=mode, dynamic=False)
            torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
        self.log({
            "event": "start", "name": recipe.name, "parameters": model.n_parameters(), "device": str(self.device),
            "machine": machine_name(self.device), "steps": t.steps, "examples": self.material.train.n_examples,
            "steps_per_epoch": self.material.train.steps, "drawn": len(drawn), "threads": torch.get_num_threads(),
        })  # fmt: skip
        return Run(
            model,
            self.material.objective,
            Optimizer(model, recipe.optimizer),
            loss_of,
            autocast=torch.bfloat16 if t.precision == "bf16" else None,
            clip=recipe.optimizer.clip,
            spike=t.spike,
            average=MovingAverage(model, t.ema) if t.ema else None,
            group=self.group,
        )

    def _depends_on(self) -> dict[str, Any]:
        """What a resumed run must find as it was."""
        tokenizer = self.material.tokenizer
        return {
            "recipe": self.recipe.to_dict(),
            "data": self.material.fingerprint,
            "tokenizer": None if tokenizer is None else digest(tokenizer),
            "model": self.run.model.config.to_dict(),
            "world": self.group.world,
        }

    def _go_on(self) -> None:
        """Puts the newest whole checkpoint back."""
        found = newest(self.folder, lambda text: self.log({"event": "note", "text": text}))
        if found is None:
            raise CheckpointError(f"{self.folder} holds no whole checkpoint: start the run without --resume")
        self._refuse_another_run(found)
        run, state = self.run, found.state
        weights = found.tensors("weights")
        for name, parameter in run.model.named_parameters():
            weights.copy_into(name, parameter.data)
        run.optimizer.load(found.tensors("optimizer"))
        if run.average is not None:
            run.average.load(found.tensors("average"))
        run.step = found.step
        run.tokens, run.skipped, run.in_a_row = state["tokens"], state["skipped"], state["in_a_row"]
        run.best, run.best_step, run.waited = state["best"], state["best_step"], state["waited"]
        usual = float("nan") if state["usual_loss"] is None else state["usual_loss"]
        run.usual_loss = torch.full((), usual, device=self.device)
        self.seconds_before, self.flops, self.scores = state["seconds"], state["flops"], state["scores"]
        restore_random_state(found.tensors("random"))
        self.log({"event": "resume", "step": run.step, "from": found.path.name})
        if state["threads"] != torch.get_num_threads():
            text = f"this run had {state['threads']} threads, now {torch.get_num_threads()}: its bits may differ"
            self.log({"event": "note", "text": text})

    def _refuse_another_run(self, found: Checkpoint) -> None:
        before, now = found.state["depends_on"], self._depends_on()
        changed = differences(before["recipe"], now["recipe"])
        changed += [f"the {name}" for name in ("data", "tokenizer", "world") if before[name] != now[name]]
        changed += [f"model.{line}" for line in differences(before["model"], now["model"])]
        if changed:
            raise ConfigError(
                f"this is another run than the one in {self.out}: {'; '.join(changed)}. Put it back as it was, or "
                f"start a new run in another --out"
            )

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run_to_the_end(self) -> Outcome:
        """Steps, measurements, checkpoints; then the model folder."""
        recipe, run, steps = self.recipe, self.run, self.recipe.train.steps
        feed = Feed(
            self.material.train, run.objective, seed=recipe.seed, accumulate=recipe.train.accumulate,
            device=self.device, workers=recipe.train.workers, rank=self.group.rank, world=self.group.world,
        )  # fmt: skip
        self.started = time.perf_counter()
        self.peak = peak_flops(self.device, run.autocast or torch.float32)
        self.lap = Lap(run.tokens)
        behind = 16 if self.device.type == "cuda" else 0
        saved = run.step
        stop_early = False
        with feed.ahead(run.step, steps) as batches:
            for batch in batches:
                result = take_step(run, batch, rate_at(recipe.schedule, run.step + 1, steps))
                self._count(batch)
                look_back(run, result, behind=behind, complain=self.log)
                done = run.step == steps
                if run.step % recipe.evaluate.log == 0 or done:
                    self._report(result)
                if run.step % recipe.evaluate.every == 0 or done:
                    stop_early = self._measure()
                best_now = recipe.evaluate.keep_best and run.best_step == run.step
                if run.step % recipe.checkpoint.every == 0 or done or stop_early or best_now or self.interruption:
                    self._save()
                    saved = run.step
                if stop_early or self.interruption:
                    break
        if self.interruption:
            if saved != run.step:
                self._save()
            self.log({"event": "end", "step": run.step, "reason": "interrupted", "seconds": self._seconds()})
            return Outcome(run.step, False, self.interruption.exit_code, self.scores, self._seconds())
        if self.group.leads:
            self._finish()
        self.group.wait()
        self.log({"event": "end", "step": run.step, "reason": "stopped early" if stop_early else "done",
                  "seconds": self._seconds(), "scores": self.scores})  # fmt: skip
        return Outcome(run.step, True, 0, self.scores, self._seconds())

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.started

    def _count(self, batch: Any) -> None:
        """Adds up the operations; each shape is counted once."""
        for part in batch.parts:
            shape = tuple((name, tuple(tensor.shape)) for name, tensor in part.items())
            if shape not in self._flops_of:
                self._flops_of[shape] = step_flops(self.run.model, self.run.objective, part)
            self.flops += self._flops_of[shape]
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
        if self.material.valid is None:
            return False
        with weights_of(run.model, run.average):
            found = validate(run.model, run.objective, self.material.valid, batches=e.batches, autocast=run.autocast)
            found |= bits(found, self.material)
            written = samples(run.model, self.material, e.samples, e.prompt)
        if e.metric not in found:
            raise ConfigError(f"evaluate.metric={e.metric!r} is not measured here; measured are {', '.join(found)}")
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
        return e.patience > 0 and run.waited >= e.patience

    def _save(self) -> None:
        look_back(self.run, None, behind=0, complain=self.log)
        if not self.group.leads:
            return
        run = self.run
        tensors: dict[str, dict[str, torch.Tensor]] = {
            "weights": dict(run.model.named_parameters()),
            "optimizer": run.optimizer.tensors(),
            "random": random_state(),
        }
        if run.average is not None:
            tensors["average"] = run.average.weights
        state = {
            **run.counters(), "depends_on": self._depends_on(), "seconds": self._seconds(), "flops": self.flops,
            "scores": self.scores, "threads": torch.get_num_threads(),
        }  # fmt: skip
        write_checkpoint(self.folder, run.step, tensors, state)
        keep(self.folder, max(self.recipe.checkpoint.keep, self.recipe.train.average), run.best_step)
        self.log({"event": "checkpoint", "step": run.step, "seconds": self._seconds()})
        self.lap.start(self.run.tokens)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """The model folder: the weights that the recipe asks for, the tokenizer, the recipe and the card."""
        run, recipe = self.run, self.recipe
        weights = self._choose_weights()
        merge_lora(run.model)
        model: Model = run.model.eval()
        save(model, self.out, self.material.tokenizer)
        for name, text in {
            "recipe.toml": to_toml(recipe),
            "README.md": model_card(recipe, model, {
                "step": run.step, "tokens": run.tokens, "seconds": self._seconds(), "flops": self.flops,
                "skipped": run.skipped, "scores": self.scores, "machine": machine_name(self.device), "weights": weights,
            }),
        }.items():  # fmt: skip
            with replacing(self.out / name) as temporary:
                temporary.write_text(text, encoding="utf-8")

    def _choose_weights(self) -> str:
        """Gives the model its final weights, and says which they are."""
        run, recipe = self.run, self.recipe
        if recipe.train.average:
            paths = checkpoints(self.folder)[-recipe.train.average :]
            average_of([read_checkpoint(path).tensors("weights") for path in paths], run.model)
            return f"The weights are the mean of the last {len(paths)} checkpoints."
        name, step = ("weights", run.step) if run.average is None else ("average", run.step)
        if recipe.evaluate.keep_best and run.best_step is not None:
            step = run.best_step
        source = read_checkpoint(self.folder / f"step-{step:08d}").tensors(name)
        for parameter_name, parameter in run.model.named_parameters():
            source.copy_into(parameter_name, parameter.data)
        which = "a moving average of the weights" if name == "average" else "the weights"
        best = f", the best by {recipe.evaluate.metric}" if step == run.best_step and recipe.evaluate.keep_best else ""
        return f"These are {which} after step {step:,}{best}."
