"""Sound files for every reader, made anew for each campaign, and what a user does with them.

Each reader has `samples`, folders as names and bytes, and `read(folder, out)`, which reads what is in a folder and may
write into another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

Files = dict[str, bytes]
WORDS = "the a cat dog bird sat ran flew on under over mat house tree big small red old and was it é 漢".split()


@dataclass(frozen=True)
class Reader:
    """`share` is how often it is tried, compared with the others."""

    name: str
    samples: list[Files]
    read: Callable[[Path, Path], None]
    share: float = 1.0
    odd: Sequence[Files] = ()  # sound or not, they may be refused as they are
    only: str = ""  # the endings of the names of files that are changed; all without them


def files_of(folder: Path) -> Files:
    """A folder as names and bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sentences(n: int, draw: Random) -> list[str]:
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(n)]


def only(folder: Path) -> Path:
    """The one file in a folder."""
    (path,) = (path for path in folder.iterdir() if path.is_file())
    return path


def a_tokenizer() -> Any:
    from cutaway.tokens.tokenizer_training import train_tokenizer

    return train_tokenizer(sentences(60, Random(0)), kind="bpe", vocab_size=300)


def small(family: str) -> Any:
    import torch
    from helpers.tiny_models import tiny

    return tiny(family, dtype=torch.float32, d_model=24)
