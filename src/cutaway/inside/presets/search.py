"""What every preset gets: a model, the options, and how to report progress and warnings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cutaway.errors import InputError
from cutaway.inside.progress import Progress
from cutaway.inside.reports.options import CircuitOptions
from cutaway.model.model import Model
from cutaway.pictures.terminal_text import minus
from cutaway.tokens import Tokenizer

LEAST_SCORE = 0.3  # a head has a role if it scores at least this
LISTED = 10  # heads of a circuit that is found by scores alone


@dataclass(frozen=True)
class Search:
    """A search for a circuit."""

    model: Model
    tokenizer: Tokenizer
    options: CircuitOptions
    progress: Progress
    warn: Callable[[str], None]

    def with_progress(self, progress: Progress) -> "Search":
        return replace(self, progress=progress)

    def warn_of_failure(self, what: str) -> None:
        """Warns that the model fails the task: some heads score best all the same."""
        self.warn(f"this model fails the task: {minus(what)}; its heads do something else")

    def check_language_model(self) -> None:
        if self.model.config.task != "language_model":
            raise InputError(f"this preset is for language models, and this one is for task={self.model.config.task!r}")

    def start_id(self) -> int | None:
        """The token that has to stand before a text, where the tokenizer does not write it."""
        start = self.model.config.start_id
        begins = start is not None and self.tokenizer.begins_with(start, self.model.config.end_ids or ())
        return start if begins else None

    def prompts_file(self, content: str) -> Path:
        """The file of prompts, for presets that have none of their own."""
        file = self.options.prompts
        if file is None:
            raise InputError(f"this preset needs {content}: --prompts FILE (--help has an example)")
        if not file.is_file():
            raise InputError(f"prompts={file} is not a file")
        return file
