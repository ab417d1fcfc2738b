"""The options of training a tokenizer, each stated once: see `cutaway.arguments`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cutaway.arguments import Options, option
from cutaway.errors import ConfigError


class Kind(StrEnum):
    """What an entry of the vocabulary is."""

    word = "word"
    char = "char"
    byte = "byte"
    bpe = "bpe"
    wordpiece = "wordpiece"
    unigram = "unigram"


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Options):
    """What kind of tokenizer to train."""

    kind: str = option("bpe", "What an entry of the vocabulary is.", type=Kind)
    vocab_size: int | None = option(
        None, "Entries, special tokens included; not needed for word, char and byte.", flags=("--vocab",)
    )
    lowercase: bool = option(False, "Convert the text to lower case.", flags=("--lowercase",))
    min_frequency: int = option(1, "Entries that occur less often are left out.")
    mask: bool = option(False, "Add <mask>, for masked language models; wordpiece has [MASK].", flags=("--mask",))
    tags: Sequence[str] | str = option(
        "", "Add <2de>, <2en>: tags that select the target language.", type=str, metavar="de,en"
    )
    special: Sequence[str] = option((), "Other special tokens, such as <delim>.", type=None)

    def check(self) -> None:
        if self.kind not in tuple(Kind):
            raise ConfigError(f"kind={self.kind!r} is not one of {', '.join(Kind)}")

    @property
    def tag_list(self) -> list[str]:
        """The tags; on the command line they are separated by commas."""
        if isinstance(self.tags, str):
            return [tag.strip() for tag in self.tags.split(",") if tag.strip()]
        return list(self.tags)
