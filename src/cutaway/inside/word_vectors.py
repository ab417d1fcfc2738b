"""Words as points: which lie near each other, and what is to c as b is to a.

    vectors = WordVectors.read(Path("glove.npy"))                       # GloVe, word2vec, fastText's .vec
    vectors = WordVectors.of_model(model, tokenizer)                    # a model's own embedding
    vectors.nearest("king")                                             # prince, queen, …
    vectors.analogy("man", "woman", "king")                             # queen

How alike two words are is the cosine of the angle between their vectors: the length, which says mostly how frequent a
word is, does not count. An analogy a : b :: c : ? is answered with the word d, none of the three, that has the largest

    3CosAdd   cos(d, b) − cos(d, a) + cos(d, c)                             Mikolov et al. 2013
    3CosMul   s(d, b) · s(d, c) / (s(d, a) + ε), s = (cos + 1) / 2          Levy & Goldberg 2014
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.checkpoints.word_vectors import read_word_vectors
from cutaway.decoding.single_pass import Row, check_ready, side_by_side, template
from cutaway.errors import InputError
from cutaway.evaluation.word_similarity import three_cos_add, three_cos_mul
from cutaway.model.embeddings import TokenEmbedding
from cutaway.model.finite import check_scores
from cutaway.model.heads import LanguageModelHead
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import tap_names, watch
from cutaway.tokens import Tokenizer

BEFORE = "a "  # a word is cut into tokens as it is behind another: with its space, where tokens have one
SPELLINGS = 50_000  # the most frequent words, which are suggested for an unknown one


@dataclass(frozen=True)
class Neighbours:
    """The nearest words with their scores, the best first."""

    asked: tuple[str, ...]
    by: str
    found: tuple[tuple[str, float], ...]
    note: str = ""

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.found]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "asked": list(self.asked), "found": [list(each) for each in self.found]}


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words and their vectors: `unit` has a row of length 1 for each word; `several` has the words of several tokens.

    >>> WordVectors.make(["a", "b", "c"], np.eye(3)).nearest("a", k=1)
    """

    words: list[str]
    unit: Float[np.ndarray, "word d"]
    source: str
    several: Mapping[str, list[str]] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        words: Sequence[str],
        vectors: Float[np.ndarray, "word d"],
        source: str = "",
        several: Mapping[str, list[str]] | None = None,
    ) -> "WordVectors":
        """From vectors of any length; a vector of length 0 is similar to none."""
        if len(words) != len(vectors) or not len(words):
            raise InputError(f"{len(words)} words for {len(vectors)} vectors")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return cls(list(words), vectors / np.where(lengths > 0, lengths, 1), source, several or {})

    @classmethod
    def read(cls, path: Path, most: int | None = None) -> "WordVectors":
        """The first `most` words of a file (`cutaway.checkpoints.word_vectors` says of which kinds)."""
        return cls.make(*read_word_vectors(path, most), str(path))

    @classmethod
    def of_model(
        cls, model: Model, tokenizer: Tokenizer, at: str = "embedding", words: Iterable[str] = ()
    ) -> "WordVectors":
        """What a model has of every word that is one token, and of further `words`.

        At the "embedding" (of a translator: its source's), at the "unembedding" whose rows score the next token, or at
        a tap, such as decoder.3.residual_after: what each word becomes there, read by itself.
        """
        check_ready(model)
        pieces = {**_whole_words(tokenizer), **{word: _pieces(tokenizer, word) for word in words}}
        known = list(pieces)
        ids = [pieces[word] for word in known]
        several = {word: [tokenizer.token(id) for id in pieces[word]] for word in known if len(pieces[word]) > 1}
        if at in MATRICES:
            matrix = _matrix(model, at).detach().float().cpu().numpy()
            vectors = np.stack([matrix[some].mean(axis=0) for some in ids])
        else:
            vectors = _read_alone(model, tokenizer, at, ids)
        return cls.make(known, vectors, f"{model.config.family}, {at}", several)

    @cached_property
    def row(self) -> dict[str, int]:
        """Of each word its first row, which is that of its most frequent spelling where there are two."""
        return {word: number for number, word in reversed(list(enumerate(self.words)))}

    def number(self, word: str) -> int:
        """The row of a word; as it is spelled, else in small letters."""
        for spelling in (word, word.lower()):
            if spelling in self.row:
                return self.row[spelling]
        near = get_close_matches(word.lower(), self.words[:SPELLINGS], n=3)
        raise InputError(
            f"{word!r} is none of the {len(self.words):,} words" + (f"; near are {', '.join(near)}" * bool(near))
        )

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between two words."""
        return float(self.unit[self.number(a)] @ self.unit[self.number(b)])

    def nearest(self, word: str, k: int = 10) -> Neighbours:
        """The k words that are most like a word, without itself."""
        number = self.number(word)
        return self._best((word,), "cosine", self.unit @ self.unit[number], [number], k)

    def analogy(self, a: str, b: str, c: str, k: int = 10, *, by: str = "add") -> Neighbours:
        """What is to c as b is to a: man, woman, king → queen."""
        ways = {"add": three_cos_add, "mul": three_cos_mul}
        if by not in ways:
            raise InputError(f"by={by!r} is neither 'add' nor 'mul'")
        rows = [self.number(word) for word in (a, b, c)]
        scores = ways[by](*(torch.from_numpy(self.unit @ self.unit[row]) for row in rows)).numpy()
        return self._best((a, b, c), f"3Cos{by.title()}", scores, rows, k)

    def _best(self, asked: tuple[str, ...], by: str, scores: np.ndarray, without: Sequence[int], k: int) -> Neighbours:
        if k < 1:
            raise InputError(f"k={k}: ask for at least one word")
        scores = scores.copy()
        scores[list(without)] = -np.inf
        k = min(k, len(scores) - len(set(without)))
        some = np.argpartition(-scores, k - 1)[:k] if k else np.array([], dtype=int)
        best = some[np.argsort(-scores[some], kind="stable")]
        cut = [f"{word} is {' + '.join(self.several[word])}: their mean" for word in asked if word in self.several]
        found = tuple((self.words[i], float(scores[i])) for i in best)
        return Neighbours(asked, by, found, "; ".join(cut))


# --- the words of a model ---------------------------------------------------------------------------------------------

MATRICES = {"embedding": TokenEmbedding, "unembedding": LanguageModelHead}


def _matrix(model: Model, at: str) -> Float[Tensor, "vocab d"]:
    name = "source_embedding" if isinstance(model, EncoderDecoderModel) and at == "embedding" else ""
    for part in (model.get_submodule(name) if name else model).modules():
        if isinstance(part, (TokenEmbedding, LanguageModelHead)) and isinstance(part, MATRICES[at]):
            return part.matrix
    raise InputError(f"a {model.config.family} model for task={model.config.task!r} has no {at} of words")


def _pieces(tokenizer: Tokenizer, word: str) -> list[int]:
    """The tokens of a word as it stands within a text."""
    encoded = tokenizer.encoding(BEFORE + word, special=False)
    found = [id for id, (_, stop) in zip(encoded.ids, encoded.offsets, strict=True) if stop > len(BEFORE)]
    if not found:
        raise InputError(f"{word!r} has no token")
    return found


def _whole_words(tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Each word that is one token."""
    special = set(tokenizer.special_ids().values())
    ids = [id for id in range(tokenizer.vocab_size) if id not in special]
    spelled = [tokenizer.decode([id]).strip() for id in ids]
    words = [
        (id, word) for id, word in zip(ids, spelled, strict=True) if word and word[0].isalpha() and word.isprintable()
    ]
    texts = tokenizer.encode_batch([BEFORE + word for _, word in words], special=False)
    front = tokenizer.encode(BEFORE.strip(), special=False)  # a space that is a token by itself stands before a part
    return {word: [id] for (id, word), ids in zip(words, texts, strict=True) if ids == [*front, id]}


@torch.no_grad()
def _read_alone(
    model: Model, tokenizer: Tokenizer, at: str, words: Sequence[list[int]], batch_tokens: int = 8192
) -> Float[np.ndarray, "word d"]:
    """The mean state of each word's tokens at a tap, with what the tokenizer, or the model, puts around a text."""
    if at not in tap_names(model):
        near = get_close_matches(at, [*MATRICES, *tap_names(model)], n=3)
        raise InputError(
            f"at={at!r} is neither {' nor '.join(MATRICES)} nor a tap; near are {', '.join(near) or 'none'}"
        )
    around = [id for id, _ in template(tokenizer, 1)]
    here = around.index(-1)
    front, back = around[:here], around[here + 1 :]
    start = model.config.start_id
    if not front and start is not None and not isinstance(model, EncoderDecoderModel):
        front = [start]
    rows = [Row([*front, *ids, *back], [0] * (len(front) + len(ids) + len(back))) for ids in words]
    found: list[np.ndarray] = [np.empty(0)] * len(rows)
    for chosen, ids, more in side_by_side(model, rows, batch_tokens):
        with watch(model, at) as seen:
            _ = model.encode(ids, more["real"]) if isinstance(model, EncoderDecoderModel) else model.hidden(ids, **more)
        if seen[at].shape[:2] != ids.shape or seen[at].ndim != 3:
            raise InputError(
                f"at={at!r} has shape {tuple(seen[at].shape)} and not one vector for each token: choose a tap without "
                "heads, such as a residual_after"
            )
        check_scores(model, seen[at])
        states = seen[at].float().cpu().numpy()
        for row, i in enumerate(chosen):
            found[i] = states[row, len(front) : len(front) + len(words[i])].mean(axis=0)
    return np.stack(found)
