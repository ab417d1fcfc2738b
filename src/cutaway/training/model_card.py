"""The model card: what the model is, how and on what it was trained, and its scores."""

from datetime import UTC, datetime
from typing import Any

from cutaway.bundled.info import front_matter
from cutaway.model.model import Model
from cutaway.training.recipe import Recipe


def model_card(recipe: Recipe, model: Model, facts: dict[str, Any]) -> str:
    """The README.md of a model folder."""
    scores = "\n".join(f"| {name} | {value:.4f} |" for name, value in facts["scores"].items())
    files = ", ".join(f"`{name}`" for name in recipe.data.train)
    about = recipe.about or f"A {model.config.family} model trained with Cutaway."
    best = facts["scores"].get(recipe.evaluate.metric)
    score = None if best is None else f"{recipe.evaluate.metric} {best:.4f} on the validation examples"
    top = front_matter({"about": " ".join(about.split()), "license": recipe.licence, "score": score})
    return f"""{top}
# {recipe.name}

{about}

| | |
|---|---|
| family, task | {model.config.family}, {model.config.task} |
| parameters | {model.n_parameters():,} |
| objective | {recipe.objective.kind} |
| start | {_start(recipe)} |
| training data | {files} |
| licence of the data | {recipe.licence or "not stated in the recipe"} |
| steps, {facts["unit"]} seen | {facts["step"]:,}, {facts["tokens"]:,} |
| training time | {facts["seconds"]:,.0f} s on {facts["machine"]} |
| operations | {facts["flops"]:.2e} |
| steps skipped (no finite loss) | {facts["skipped"]} |
| date | {datetime.now(UTC):%Y-%m-%d} |

## Scores on the validation examples

| score | value |
|---|---|
{scores or "| none: the recipe names no validation data | |"}

{facts["weights"]}

## How to make it again

The resolved recipe is `recipe.toml` in this folder:

```
cutaway train recipe.toml --out again
```
"""


def _start(recipe: Recipe) -> str:
    """Where the weights come from, and which of them were trained."""
    start = "new weights" if recipe.model.start is None else f"the weights of `{recipe.model.start}`"
    rank = recipe.train.lora_rank
    return start + (f", trained by LoRA of rank {rank} and merged" if rank else "")
