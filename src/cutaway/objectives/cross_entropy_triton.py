"""The kernel of `cross_entropy`, in Triton. One program: one position."""
# mypy: ignore-errors
# (what Triton compiles is written in Python's grammar, but is not Python)

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(scores, targets, loss, grad, scores_row, width, vocab_size, ignored, smoothing, LEARNS: tl.constexpr,
              BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    scores += row * scores_row
    grad += row * width
    target = tl.load(targets + row)
    column = tl.arange(0, BLOCK)
    if target == ignored:
        tl.store(loss + row, 0.0)
        if LEARNS:
            for start in range(0, width, BLOCK):
                tl.store(grad + start + column, 0.0, mask=start + column < width)
    else:
        highest, total, added = float("-inf"), 0.0, 0.0
        for start in range(0, width, BLOCK):
            # masked by the width, which is a multiple of 16: whole words of memory are read
            x = tl.load(scores + start + column, mask=start + column < width, other=0.0).to(tl.float32)
            there = start + column < vocab_size
            added += tl.sum(tl.where(there, x, 0.0), 0)
            x = tl.where(there, x, float("-inf"))
            new = tl.maximum(highest, tl.max(x, 0))
            total = total * tl.exp(highest - new) + tl.sum(tl.exp(x - new), 0)
            highest = new
        log_total = highest + tl.log(total)
        wanted = tl.load(scores + target).to(tl.float32)
        tl.store(loss + row, log_total - (1 - smoothing) * wanted - smoothing * added / vocab_size)
        if LEARNS:
            for start in range(0, width, BLOCK):
                x = tl.load(scores + start + column, mask=start + column < width, other=0.0).to(tl.float32)
                g = tl.exp(x - log_total) - smoothing / vocab_size
                g = tl.where(start + column == target, g - (1 - smoothing), g)
                g = tl.where(start + column < vocab_size, g, 0.0)
                tl.store(grad + start + column, g, mask=start + column < width)


def cross_entropy(
    scores: Tensor, targets: Tensor, vocab_size: int, ignored: int, smoothing: float, learns: bool, loss: Tensor,
    grad: Tensor,
) -> None:  # fmt: skip
    n, width = scores.shape
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    # the fastest of some on an H200; with more threads to a row each sum waits longer for the last of them
    block = 2048 if width > 32768 else 4096
    if n:
        _kernel[n,](
            scores, targets, loss, grad, scores.stride(0), width, vocab_size, ignored, smoothing, learns, block,
            num_warps=4,
        )  # fmt: skip
