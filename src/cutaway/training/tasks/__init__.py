"""The table of tasks: what a model can be trained to do. A new task is one row here and one file beside this one.

The file of a task has two functions: `objective(recipe, tokenizer)`, what is learnt, and `samples(model, dataset, n,
prompt)`, a few lines for people to read. It is imported when its task is trained.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from cutaway.training.recipe import Recipe

LabelKind = Literal["class", "number", "tags"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A row of the table."""

    file: str  # in this folder
    head: str  # of the model: `task` in its config
    reads: tuple[str, ...]  # text (running text), table (or parallel files) or images; the first is the default
    columns: Literal["text", "texts", "pair"] = "text"  # of a table: one text, one or two, source and target
    labels: LabelKind | None = None  # of a table
    scores: Literal["perplexity", "labels"] | None = None  # validation scores besides the loss
    ends: bool = False  # whether <eos> follows each document of running text
    mask: bool = False  # whether a new tokenizer needs [MASK]
    sentinels: tuple[str, ...] = ()  # tokens that stand for missing spans, which a new tokenizer needs

    def objective(self, recipe: Recipe, tokenizer: Any = None) -> Any:
        return self._module().objective(recipe, tokenizer)

    def samples(self, model: Any, dataset: Any, n: int, prompt: str) -> list[str]:
        """What the model makes of a few validation examples."""
        found: list[str] = self._module().samples(model, dataset, n, prompt)
        return found

    def _module(self) -> Any:
        return import_module(f"{__name__}.{self.file}")


SENTINELS = tuple(f"<extra_id_{i}>" for i in range(100))
TASKS = {
    "next_token": Task(
        file="next_token", head="language_model", reads=("text", "table"), scores="perplexity", ends=True
    ),
    "masked": Task(file="masked", head="masked_language_model", reads=("text", "table"), mask=True),
    "pretrain": Task(file="masked", head="pretrain", reads=("text",), mask=True),
    "spans": Task(file="spans", head="translate", reads=("text",), sentinels=SENTINELS),
    "translate": Task(file="translate", head="translate", reads=("table",), columns="pair"),
    "classify": Task(
        file="labels", head="classify", reads=("table",), columns="texts", labels="class", scores="labels"
    ),
    "regress": Task(file="labels", head="regress", reads=("table",), columns="texts", labels="number", scores="labels"),
    "tag": Task(file="labels", head="tag", reads=("table",), labels="tags", scores="labels"),
    "images": Task(file="images", head="classify", reads=("images",), scores="labels"),
}


def task_of(recipe: Recipe) -> Task:
    return TASKS[recipe.objective.kind]


def data_kind(recipe: Recipe) -> str:
    """What the files of a recipe are: text, table or images."""
    default = task_of(recipe).reads[0]
    return "table" if default == "text" and recipe.data.format not in ("auto", "text") else default


def is_windowed(recipe: Recipe) -> bool:
    """Whether rows are windows of running text, all of one length."""
    kind = recipe.objective.kind
    return data_kind(recipe) == "text" and kind != "spans" and (kind == "pretrain" or recipe.data.split != "line")
