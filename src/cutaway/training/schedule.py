"""Schedules: the learning rate as a function of the step, never of the time, so that a resumed run continues exactly.

2017: rate ∝ min(1/√step, step/warmup^1.5), the inverse square root after a warm-up. Steps count from 1.
"""

import math

from cutaway.errors import ConfigError
from cutaway.training.recipe import SchedulePart

KINDS = ("constant", "inverse_sqrt", "cosine", "linear", "wsd")


def rate_at(schedule: SchedulePart, step: int, steps: int) -> float:
    """The learning rate at this step of `steps`, as a share of the highest."""
    if schedule.kind not in KINDS:
        raise ConfigError(f"schedule.kind={schedule.kind!r} is not one of {', '.join(KINDS)}")
    warmup = schedule.warmup
    if step < warmup:
        return step / warmup
    gone = min(1.0, (step - warmup) / max(1, steps + 1 - warmup))  # it ends after the last step: all steps count
    final = schedule.final
    match schedule.kind:
        case "constant":
            return 1.0
        case "inverse_sqrt":
            return math.sqrt(max(warmup, 1) / step)
        case "cosine":
            return final + (1 - final) * (1 + math.cos(math.pi * gone)) / 2
        case "linear":
            return final + (1 - final) * (1 - gone)
        case _:  # wsd: warm-up, stable, decay (Hu et al. 2024)
            left = (1 - gone) / schedule.decay if schedule.decay else 1.0
            return 1.0 if left >= 1 else final + (1 - final) * left
