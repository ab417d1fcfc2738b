"""How likely each token of a text was to the model, and which ones were likelier: log p, before any rule.

    prompt_scores(model, rows, k=5)[0][3]      # of the fifth token of the first text: nothing precedes the first

A text that is being generated shows the same of its new tokens to whoever watches it (`Watch(top=5)`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.decoding.engine.engine import padded_ids
from cutaway.decoding.engine.row_watch import TokenScore
from cutaway.decoding.search.topk import top
from cutaway.decoding.single_pass import row_batches
from cutaway.model.device import threads_for
from cutaway.model.finite import check_scores
from cutaway.model.model import DecoderModel

LOGITS_AT_ONCE = 1 << 25  # numbers: 128 MB in fp32


@torch.no_grad()
def prompt_scores(
    model: DecoderModel, rows: Sequence[Sequence[int]], k: int, *, batch_tokens: int = 8192
) -> list[list[TokenScore]]:
    """The scores of all tokens of each text but its first, and of the k likeliest in their places, in one pass."""
    found: list[list[TokenScore]] = [[] for _ in rows]
    for chosen in row_batches([row[:-1] for row in rows], batch_tokens):
        ids, real = padded_ids([rows[i][:-1] for i in chosen], model.device)
        with threads_for(ids.numel()):
            for i, states in zip(chosen, model.hidden(ids, real=real), strict=True):
                found[i] = _scores(model, states, rows[i][1:], k)
    return found


def _scores(
    model: DecoderModel, states: Float[Tensor, "seq d_model"], tokens: Sequence[int], k: int
) -> list[TokenScore]:
    found: list[TokenScore] = []
    vocab_size = model.config.vocab_size  # type: ignore[attr-defined]
    few = max(1, LOGITS_AT_ONCE // vocab_size)
    for start in range(0, len(tokens), few):
        part = tokens[start : start + few]
        logits = model.head(states[start : start + len(part)])
        check_scores(model, logits)
        log_p = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        own = log_p.gather(1, torch.tensor(part, device=log_p.device)[:, None])[:, 0]
        best, ids = top(log_p, min(k, vocab_size))
        for token, score, *pairs in zip(part, own.tolist(), ids.tolist(), best.tolist(), strict=True):
            found.append(TokenScore(token, score, list(zip(*pairs, strict=True))))
    return found
