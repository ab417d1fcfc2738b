"""A report: what a tool found about a model, to be printed, drawn and saved.

report = inspect(model, tokenizer, "The ship")
print(report)                  # what the command prints
report.show()                  # the same, in colours if stdout is a terminal
report.save("page.html")       # all pictures; .svg and .txt have the first one, .json has the numbers
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.errors import InputError
from cutaway.files import replacing
from cutaway.pictures.console import Console, report_console
from cutaway.pictures.pages import page_of, page_parts
from cutaway.pictures.terminal_text import json_text

if TYPE_CHECKING:
    from cutaway.pictures import Picture
    from cutaway.pictures.svg import Markup

ENDINGS = (".html", ".svg", ".txt", ".json")


class Report(ABC):
    """A kind of report has a `title` and a `summary`, its pictures, its numbers, and a text for a terminal."""

    model: str  # the model's name or folder

    @property
    def name(self) -> str:
        """The last part of the model's path."""
        return Path(self.model).name

    @property
    @abstractmethod
    def title(self) -> str:
        """What was looked at: the text, or the name of an image."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What was found, in a line."""

    @abstractmethod
    def pictures(self) -> "dict[str, Picture]":
        """Every picture of the report by name; the first one is what .svg and .txt hold."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""

    @abstractmethod
    def print_to(self, console: Console) -> None:
        """Prints the report."""

    def show(self) -> None:
        """Prints the report to stdout, in colours if that is a terminal."""
        self.print_to(report_console())

    def __str__(self) -> str:
        text = io.StringIO()
        self.print_to(report_console(text))
        return text.getvalue().rstrip("\n")

    def page_parts(self) -> "Iterable[Picture | Markup]":
        """What a page has below its title."""
        return self.pictures().values()

    def _repr_html_(self) -> str:
        return page_parts(self.page_parts())

    def json(self) -> str:
        """All numbers, and the model, as the command prints them with --json."""
        return json_text({"model": self.model, **self.to_dict()}) + "\n"

    def saved_json(self) -> str:
        """What a .json file holds."""
        return self.json()

    def save(self, path: Path | str) -> None:
        """Writes a page (.html), one picture (.svg, .txt) or the numbers (.json), whole or not at all."""
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in ENDINGS:
            raise InputError(f"{path.name}: a report is saved as {', '.join(ENDINGS)}")
        if ending in (".svg", ".txt"):
            self.one_picture(path.name).save(path)
            return
        text = self.saved_json() if ending == ".json" else page_of(self.title, self.summary, self.page_parts())
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")

    def one_picture(self, file: str) -> "Picture":
        """The picture of an .svg or .txt file: the first one."""
        return next(iter(self.pictures().values()))
