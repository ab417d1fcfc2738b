"""The loop: show a batch, see how wrong the model was, change the weights a little; again.

    for batch in batches:
        result = take_step(run, batch)
        report(result)

A step may be cut into parts that run one after another (accumulation) or on several machines. Each part's loss is its
sum divided by the real targets of the whole step, so that the gradient is the same however the step is cut. What is
dropped out of a part depends on the seed, the step and the part: nothing is drawn before that a resumed run would have
to draw again, and two processes find together what one finds in two parts.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.data.order import random_number
from cutaway.errors import ConfigError, CutawayError
from cutaway.model.model import Model
from cutaway.objectives.objective import Objective, Tensors
from cutaway.training.average import MovingAverage
from cutaway.training.feed import SCALE, StepBatch
from cutaway.training.optimizer import Optimizer, clipping, gradient_length
from cutaway.training.parallel import ProcessGroup

LossOf = Callable[[Model, Tensors], Tensor]
MOST_IN_A_ROW = 10
DROPOUT = 103  # what random numbers are for, as in the feed


class TrainingStopped(CutawayError):
    """The run cannot go on: ten steps in a row had no finite loss."""


@dataclass
class Run:
    """What changes from step to step."""

    model: Model
    objective: Objective
    optimizer: Optimizer
    loss_of: LossOf  # of one part: the share of each term in the step's loss
    autocast: torch.dtype | None = None
    clip: float = 1.0
    spike: float = 0.0
    average: MovingAverage | None = None
    captured: Callable[[Tensors], Tensor] | None = None  # on a GPU: `add_gradient`, recorded as CUDA graphs
    group: ProcessGroup = field(default_factory=ProcessGroup)
    seed: int = 0  # of dropout
    step: int = 0
    tokens: int = 0
    skipped: int = 0
    in_a_row: int = 0
    usual_loss: Tensor | None = None  # a moving average, on the device, for spotting spikes
    best: float | None = None
    best_step: int | None = None
    waited: int = 0  # evaluations since the best
    pending: deque[Any] = field(default_factory=deque)  # steps whose outcome has not been looked at

    def __post_init__(self) -> None:
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if self.usual_loss is None:
            self.usual_loss = torch.full((), float("nan"), device=self.model.device)

    def counters(self) -> dict[str, Any]:
        """The numbers that a checkpoint keeps."""
        assert self.usual_loss is not None
        usual = self.usual_loss.item()
        return {
            "tokens": self.tokens,
            "skipped": self.skipped,
            "in_a_row": self.in_a_row,
            "usual_loss": None if usual != usual else usual,
            "best": self.best,
            "best_step": self.best_step,
            "waited": self.waited,
        }


@dataclass(frozen=True)
class StepResult:
    """What a step gave, still on the device."""

    batch: StepBatch
    terms: Tensor  # the share of each term in the loss
    length: Tensor  # of the gradient, before clipping
    skip: Tensor  # 1 where the weights were left as they were


def loss_function(objective: Objective) -> LossOf:
    """The loss of one part of a step, term by term."""

    def loss_of(model: Model, part: Tensors) -> Tensor:
        sums = objective.losses(model, part)
        return torch.stack([sums[term] for term in objective.targets]) * part[SCALE]

    return loss_of


def take_step(run: Run, batch: StepBatch, rate: float) -> StepResult:
    """Forward, backward, and one change of the weights at `rate`, a share of the highest learning rate."""
    run.optimizer.zero_grad()
    terms = torch.zeros(len(run.objective.targets), device=run.model.device)
    for i, part in enumerate(batch.parts):
        _draw_anew(run, batch.step, i)
        if run.captured is None:
            terms += add_gradient(run.model, run.loss_of, run.autocast, part)
        else:
            terms += run.captured(part)
    run.group.add_up(run.trained, terms)
    length = gradient_length(run.trained)
    skip = _judge(run, terms.sum(), length)
    run.optimizer.set_rate(rate)
    run.optimizer.step(skip, clipping(length, run.clip))
    run.step += 1
    run.tokens += batch.tokens
    if run.average is not None:
        run.average.update(run.step, skip)
    return StepResult(batch, terms, length, skip)


def add_gradient(model: Model, loss_of: LossOf, autocast: torch.dtype | None, part: Tensors) -> Tensor:
    """Adds the gradient of one part to what is there; the share of each term in the loss."""
    with torch.autocast(model.device.type, autocast, enabled=autocast is not None):
        shares = loss_of(model, part)
    shares.sum().backward()
    return shares.detach()


def _draw_anew(run: Run, step: int, part: int) -> None:
    """Random numbers of this part's own, whichever process takes it."""
    seed = random_number(1 << 62, run.seed, DROPOUT, step, part * run.group.world + run.group.rank)
    torch.default_generator.manual_seed(seed)
    if run.model.device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _judge(run: Run, loss: Tensor, length: Tensor) -> Tensor:
    """1 where this step must not count: its loss or gradient is not finite, or it is a spike."""
    assert run.usual_loss is not None
    bad = ~(loss.isfinite() & length.isfinite())
    if run.spike > 0:
        bad = bad | (loss > run.spike * run.usual_loss)  # nothing is larger than the NaN of the first step
        moved = torch.where(run.usual_loss.isnan(), loss, run.usual_loss.lerp(loss, 0.02))
        run.usual_loss = torch.where(bad, run.usual_loss, moved)
    return bad.float()


class Fetched:
    """A number that is on its way from the device. (`tensor.item()` would wait for everything that is queued there.)"""

    def __init__(self, number: Tensor) -> None:
        self.here, self.arrived = number, None
        if number.is_cuda:
            self.here = torch.empty((), dtype=number.dtype, pin_memory=True)
            self.here.copy_(number, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def value(self) -> float:
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.here.item()


def look_back(run: Run, result: StepResult | None, *, behind: int, complain: Callable[[dict[str, Any]], None]) -> None:
    """Counts the steps that were skipped; ten in a row stop the run.

    On a GPU a step's outcome is looked at `behind` steps later, when it has been there for long: nobody waits.
    """
    if result is not None:
        run.pending.append((result.batch.step, result.batch.examples, Fetched(result.skip)))
    while len(run.pending) > behind:
        step, examples, skip = run.pending.popleft()
        if not skip.value():
            run.in_a_row = 0
            continue
        run.skipped += 1
        run.in_a_row += 1
        complain({"event": "skip", "step": step + 1, "examples": examples[:64], "skipped": run.skipped})
        if run.in_a_row >= MOST_IN_A_ROW:
            raise TrainingStopped(
                f"{MOST_IN_A_ROW} steps in a row, up to step {step + 1}, had no finite loss (or were spikes): lower "
                f"the learning rate, or look at the examples that the run log names"
            )


def recompute_activations(model: Model) -> None:
    """Activation checkpointing: a block's inner values are computed again in the backward pass, not kept."""
    from torch.utils.checkpoint import checkpoint

    from cutaway.model.blocks import Block, has_blocks

    if not has_blocks(model):
        raise ConfigError(f"train.checkpointing is for blocks, and {model.config.family} has none: leave it out")
    for part in model.modules():
        if isinstance(part, Block):
            _recompute(part, checkpoint)


def _recompute(block: nn.Module, checkpoint: Any) -> None:
    forward = block.forward

    def again(*inputs: Any, **more: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **more)
        return checkpoint(forward, *inputs, use_reentrant=False, **more)

    block.forward = again
