"""Compiled training: `torch.compile` for the parts that a model has many of.

All blocks of a model run the same code, so one block is compiled and serves them all: seconds where the whole model
would take a minute, for nearly the same speed. The first new shape of batch compiles once more, for any shape. Where
the bits matter, each shape is compiled by itself: code for any shape depends on the shape that came first, and that is
another one after a resume.

    compile_blocks(model)              # before activation checkpointing
    run = Run(model, …, loss_of, captured=Captured(model, loss_of, autocast))

Compiled code is only used in training steps; validation and samples use the model as it was.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from cutaway.model.blocks import Block
from cutaway.model.embeddings import Embedding, PatchEmbedding
from cutaway.model.encoder import Stack
from cutaway.model.model import Model
from cutaway.training.loop import LossOf

MOST_TIMES = 256  # a part may be compiled: once per shape, kind of mask, cross-attention or not, …


def compile_loss(loss_of: LossOf, mode: str) -> LossOf:
    """The whole loss in one piece, each shape by itself; `mode` is `torch.compile`'s."""
    _allow_many_shapes()
    return torch.compile(loss_of, mode=None if mode == "default" else mode, dynamic=False)


def compile_blocks(model: Model) -> None:
    """Compiles the forward passes of training."""
    _allow_many_shapes()
    dynamic = False if torch.are_deterministic_algorithms_enabled() else None
    compiled: dict[type[nn.Module], Callable[..., Any]] = {}
    for part in _compiled_parts(model):
        kind = type(part)
        if kind not in compiled:
            compiled[kind] = torch.compile(kind.forward, dynamic=dynamic)
        _in_training(part, compiled[kind])


def _allow_many_shapes() -> None:
    """Beyond its limit torch would run further shapes uncompiled, and which ones depends on their order."""
    config = torch._dynamo.config
    config.recompile_limit = max(MOST_TIMES, config.recompile_limit)
    config.accumulated_recompile_limit = max(4 * MOST_TIMES, config.accumulated_recompile_limit)


def _compiled_parts(model: Model) -> Iterator[nn.Module]:
    for part in model.modules():
        if isinstance(part, Block | Embedding | PatchEmbedding):
            yield part
        elif isinstance(part, Stack) and part.final_norm is not None:
            yield part.final_norm


def _in_training(part: nn.Module, fast: Callable[..., Any]) -> None:
    plain = part.forward

    def forward(*inputs: Any, **more: Any) -> Any:
        if part.training and torch.is_grad_enabled():
            return fast(part, *inputs, **more)
        return plain(*inputs, **more)

    part.forward = forward
