"""How likely each token of a text was to the model, and which ones were likelier: log p, before any rule.

prompt_scores(model, rows, k=5)     # of texts that are there
KeptScores(k=5)                     # a rule that changes nothing, of a text while it is generated
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.engine.engine import padded_ids
from cutaway.decoding.rules.scores import Rule, Scores, Text
from cutaway.decoding.single_pass import row_batches
from cutaway.model.device import threads_for
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel

LOGITS_AT_ONCE = 1 << 25  # numbers: 128 MB in fp32


@dataclass(frozen=True)
class TokenScore:
    """A token, its log p, and the k likeliest tokens in its place with theirs, the likeliest first."""

    id: int
    log_p: float | None  # None for the first token of a text, which nothing precedes
    top: list[tuple[int, float]]


@dataclass(frozen=True, eq=False)
class KeptScores(Rule):
    """Keeps the scores of one text, in `found`, and changes nothing. `heard` is to be called after every step."""

    k: int
    found: list[TokenScore] = field(default_factory=list)
    latest: list[Float[Tensor, " vocab"]] = field(default_factory=list)
    on_host: ClassVar[bool] = True
    rank: ClassVar[int] = -2  # before those that change something

    def __call__(self, scores: Scores, text: Text) -> Scores:
        self.latest[:] = [scores[0].log_softmax(dim=-1)]
        return scores

    def heard(self, ids: Sequence[int]) -> None:
        """Takes the tokens of the text so far, of which the last is new."""
        if len(ids) > len(self.found):
            self.found.append(token_score(ids[-1], self.latest[0], self.k))


@torch.no_grad()
def prompt_scores(
    model: DecoderModel, rows: Sequence[Sequence[int]], k: int, *, batch_tokens: int = 8192
) -> list[list[TokenScore]]:
    """The scores of every token of each text, in one pass over texts of similar length."""
    found: list[list[TokenScore]] = [[] for _ in rows]
    for chosen in row_batches(rows, batch_tokens):
        ids, real = padded_ids([rows[i] for i in chosen], model.device)
        with threads_for(ids.numel()):
            hidden = model.hidden(ids, real=real)
            for i, states in zip(chosen, hidden, strict=True):
                found[i] = [TokenScore(rows[i][0], None, []), *_scores(model, states[: len(rows[i]) - 1], rows[i], k)]
    return found


def _scores(model: DecoderModel, states: Float[Tensor, "seq d_model"], ids: Sequence[int], k: int) -> list[TokenScore]:
    found: list[TokenScore] = []
    few = max(1, LOGITS_AT_ONCE // model.config.vocab_size)  # type: ignore[attr-defined]
    for start in range(0, len(states), few):
        logits = model.head(states[start : start + few])
        check_scores(model, logits)
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
        found += [token_score(ids[start + 1 + place], one, k) for place, one in enumerate(log_p)]
    return found


def token_score(id: int, log_p: Float[Tensor, " vocab"], k: int) -> TokenScore:
    values, ids = log_p.topk(min(k, len(log_p)))
    return TokenScore(id, float(log_p[id]), list(zip(ids.tolist(), values.tolist(), strict=True)))
