"""Which word comes from which: the cross-attention of one decoder block, read while the model is told its translation.

    alignment = align(model, tokenizer, ["I ate an apple."], ["Ich aß einen Apfel."])[0]
    alignment.pharaoh()     # '0-0 1-1 2-2 3-3 4-4'

The decoder looks at the source to choose token i, so row i of the pattern (the mean of the heads) is where token i
comes from. Tokens become words by their places in the text: what the tokens of a source word get is added up, the rows
of a target word are averaged, and what went to the tag and to the end is left out, so that each row sums to 1.

Which block? The last, unless `layer` says otherwise: on decoders of 2 and 3 blocks that learnt to spell backwards
(`toys/reversal.py`) it points at the right letter every time, the one before it in 50 and 96 of 100. In deep models
for real languages the last but one may be better (Garg et al. 2019). Attention is no proof of what mattered; it is the
cheapest good guess.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.engine.engine import padded_ids
from cutaway.errors import InputError
from cutaway.model.finite import check_scores
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.tap import watch
from cutaway.tokens import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where each word of a target comes from. Words are characters [start, stop) of their text.

    A word comes from its own sentence, so that there is a block for each: of a long text they are all that is kept.
    """

    source: str
    target: str
    source_words: list[Span]
    target_words: list[Span]
    blocks: list[Float[Tensor, "_ _"]]  # target word × source word; each row sums to 1

    @property
    def matrix(self) -> Float[Tensor, "target source"]:
        """Of all words, the blocks along its diagonal: as large as the square of the text."""
        whole = torch.block_diag(*self.blocks) if self.blocks else torch.zeros(0, 0)
        return whole.reshape(len(self.target_words), len(self.source_words))

    def links(self) -> list[tuple[Span, Span, float]]:
        """(source word, target word, weight): for every target word, the source word that it looked at most."""
        return [(self.source_words[i], self.target_words[j], weight) for i, j, weight in self._best()]

    def pharaoh(self) -> str:
        """The same as `0-0 1-2 …`: number of the source word, number of the target word."""
        return " ".join(f"{i}-{j}" for i, j, _ in self._best())

    def _best(self) -> list[tuple[int, int, float]]:
        found, source, target = [], 0, 0
        for block in self.blocks:
            if block.numel():
                weights, best = block.max(dim=1)
                pairs = zip(best.tolist(), weights.tolist(), strict=True)
                found += [(source + i, target + j, weight) for j, (i, weight) in enumerate(pairs)]
            source, target = source + block.shape[1], target + len(block)
        return found

    def moved(self, source: int, target: int) -> "Alignment":
        """The same words, that many characters further on."""
        return replace(
            self,
            source_words=[(a + source, b + source) for a, b in self.source_words],
            target_words=[(a + target, b + target) for a, b in self.target_words],
        )


def identical(text: str) -> Alignment:
    """The alignment of a text with itself."""
    words = word_spans(text)
    return Alignment(text, text, words, words, [torch.eye(len(words))])


def joined_alignment(source: str, target: str, parts: Sequence[Alignment]) -> Alignment:
    """The alignment of a text from those of its sentences, whose words stand at their places in the text."""
    source_words = [word for part in parts for word in part.source_words]
    target_words = [word for part in parts for word in part.target_words]
    return Alignment(source, target, source_words, target_words, [block for part in parts for block in part.blocks])


@torch.no_grad()
def align(
    model: EncoderDecoderModel,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tag: int | None = None,
    layer: int | None = None,
    rows: int = 32,
) -> list[Alignment]:
    """The alignment of each target with its source; `layer` is the decoder block, the last unless given."""
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources for {len(targets)} targets: give one for each")
    n_layers = len(model.decoder)
    layer = n_layers - 1 if layer is None else layer
    if not 0 <= layer < n_layers:
        raise InputError(f"layer={layer}: this model's decoder has blocks 0 … {n_layers - 1}")
    if not model.config.end_ids or model.config.start_id is None:
        raise InputError("this model does not say what begins and ends a text: set start_id and end_ids in its config")
    front, end, start = [] if tag is None else [tag], model.config.end_ids[0], model.config.start_id
    found = []
    for first in range(0, len(sources), rows):
        some = list(zip(sources[first : first + rows], targets[first : first + rows], strict=True))
        texts = [[tokenizer.encode_full(text, special=False) for text in pair] for pair in some]
        source, source_real = padded_ids([[*front, *read.ids, end][: model.max_len] for read, _ in texts], model.device)
        target, real = padded_ids([[start, *said.ids[:-1]][: model.max_len] for _, said in texts], model.device)
        name = f"decoder.{layer}.cross.pattern"
        with watch(model, name) as seen:
            model.hidden(source, target, source_real=source_real, real=real)
        check_scores(model, seen[name])
        for pattern, pair, (read, said) in zip(seen[name].float().mean(dim=1).cpu(), some, texts, strict=True):
            tokens = pattern[: len(said.ids), len(front) : len(front) + len(read.ids)]
            found.append(words_alignment(*pair, read.offsets, said.offsets, tokens))
    return found


def words_alignment(
    source: str, target: str, read: list[Span], said: list[Span], pattern: Float[Tensor, "target source"]
) -> Alignment:
    """From a pattern over tokens, whose places in the texts are `read` and `said`, to words."""
    source_words, target_words = word_spans(source), word_spans(target)
    looked = members(target, target_words, said[: len(pattern)])
    at = members(source, source_words, read[: pattern.shape[1]])
    matrix = looked @ pattern @ at.T
    # a word without tokens, and one that looked at no word at all, might come from anywhere
    lost = matrix.sum(dim=1, keepdim=True) == 0
    matrix = torch.where(lost, torch.ones_like(matrix), matrix)
    return Alignment(source, target, source_words, target_words, [matrix / matrix.sum(dim=1, keepdim=True)])


def members(text: str, words: list[Span], tokens: list[Span]) -> Float[Tensor, "word token"]:
    """1 where a token belongs to a word: the one that its first visible character is in; blanks belong to the next."""
    starts = torch.tensor([start for start, _ in words])
    table = torch.zeros(len(words), len(tokens))
    for number, (start, stop) in enumerate(tokens):
        visible = start + len(text[start:stop]) - len(text[start:stop].lstrip())
        word = int(torch.searchsorted(starts, visible, right=True)) - 1 if words else -1
        if words and (word < 0 or visible >= words[word][1]):
            word = min(word + 1, len(words) - 1)
        if words:
            table[word, number] = 1.0
    return table


def word_spans(text: str) -> list[Span]:
    """Words, and marks by themselves; one inside a word (`don't`, `3.14`) belongs to it."""
    kinds = "".join(" " if c.isspace() else "." if unicodedata.category(c)[0] == "P" else "w" for c in text)
    return [found.span() for found in re.finditer(r"w+(?:\.w+)*|\.", kinds)]
