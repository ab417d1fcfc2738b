"""The kernels of a greedy step on a GPU, in Triton: the likeliest token of every row, and what is written of it.

Thirty small operations of PyTorch do the same (`GreedySearch.advance`), and take as long as three blocks of GPT-2.
"""
# mypy: ignore-errors
# (what Triton compiles is written in Python's grammar, but is not Python)

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _weigh(logits, highest, place, total, n_rows, n_vocab, l_row, l_token, n_blocks,
           ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Of each row: the largest score of one block of the vocabulary, the first that has it, Σ exp(score − largest)."""
    row, block = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    known = (row < n_rows)[None, :] & (at < n_vocab)[:, None]
    scores = tl.load(
        logits + row[None, :] * l_row + at.to(tl.int64)[:, None] * l_token, mask=known, other=float("-inf")
    )
    scores = scores.to(tl.float32)
    best, which = tl.max(scores, 0, return_indices=True)
    base = tl.where(best == float("-inf"), 0.0, best)
    to = row * n_blocks + block
    tl.store(highest + to, best, mask=row < n_rows)
    tl.store(place + to, block * BLOCK + which, mask=row < n_rows)
    tl.store(total + to, tl.sum(tl.exp(scores - base[None, :]), 0), mask=row < n_rows)


@triton.jit
def _take(highest, place, total, ends, tokens, scores, written, limits, done, ids, n_blocks, n_ends, most,
          BLOCKS: tl.constexpr, ENDS: tl.constexpr):  # fmt: skip
    """Writes the likeliest token of one row, if its text still runs."""
    row = tl.program_id(0).to(tl.int64)
    at, end = tl.arange(0, BLOCKS), tl.arange(0, ENDS)
    inside = at < n_blocks
    best = tl.load(highest + row * n_blocks + at, mask=inside, other=float("-inf"))
    parts = tl.load(total + row * n_blocks + at, mask=inside, other=0.0)
    top, which = tl.max(best, 0, return_indices=True)
    token = tl.load(place + row * n_blocks + which)
    base = tl.where(top == float("-inf"), 0.0, top)
    log_p = top - base - tl.log(tl.sum(parts * tl.exp(best - base), 0))
    was_done, n = tl.load(done + row) != 0, tl.load(written + row)
    ended = tl.sum((tl.load(ends + end, mask=end < n_ends, other=-1) == token).to(tl.int32), 0) > 0
    tl.store(tokens + row * most + tl.minimum(n, most - 1), token, mask=~was_done)
    tl.store(scores + row, tl.load(scores + row) + log_p, mask=~was_done)
    n += tl.where(was_done, 0, 1)
    tl.store(written + row, n)
    tl.store(done + row, (was_done | ended | (n >= tl.load(limits + row))).to(tl.uint8))
    tl.store(ids + row, token)


def take_likeliest(
    logits: Tensor, ends: Tensor, tokens: Tensor, scores: Tensor, written: Tensor, limits: Tensor, done: Tensor
) -> Tensor:
    """One more token in every row whose text still runs; the tokens."""
    n, n_vocab = logits.shape
    beside = logits.stride(1) > 1  # the rows stand side by side: a program takes all of them, and fewer tokens
    rows = min(64, triton.next_power_of_2(n)) if beside else 1
    block = min(BLOCK // (rows if rows < 16 else 16), max(16, triton.next_power_of_2(n_vocab)))
    n_blocks = triton.cdiv(n_vocab, block)
    highest, total = (torch.empty(n, n_blocks, dtype=torch.float32, device=logits.device) for _ in range(2))
    place, ids = torch.empty(n, n_blocks, dtype=torch.long, device=logits.device), torch.empty_like(written[:n])
    _weigh[triton.cdiv(n, rows), n_blocks](
        logits, highest, place, total, n, n_vocab, *logits.stride(), n_blocks, rows, block, num_warps=4
    )
    _take[n,](
        highest, place, total, ends, tokens, scores, written, limits, done.view(torch.uint8), ids,
        n_blocks, len(ends), tokens.shape[-1],
        triton.next_power_of_2(n_blocks), triton.next_power_of_2(max(1, len(ends))), num_warps=1,
    )  # fmt: skip
    return ids
