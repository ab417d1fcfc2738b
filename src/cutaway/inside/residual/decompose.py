"""A run, decomposed: what each part wrote into a residual stream, as it arrives at a later place of the stream."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.inside.residual.frozen_norms import FrozenStep, norm_step
from cutaway.model.attention import Attention, CrossAttention
from cutaway.model.blocks import Block, has_blocks, post_norm, pre_norm
from cutaway.model.embeddings import PatchEmbedding
from cutaway.model.encoder import Stack
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.kernels.linear import Linear
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import Seen, uncompiled
from cutaway.model.upcast import upcast

AFTER = {"attention": "residual_after_attention", "cross": "residual_after_cross", "feed_forward": "residual_after"}


@dataclass
class Ledger:
    """The names of writers, their vectors in chunks (writer batch …), and the steps that were frozen on the way."""

    names: list[str] = field(default_factory=list)
    chunks: list[Tensor] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)

    def write(self, names: Sequence[str], vectors: Float[Tensor, "writer batch *seq d_model"]) -> None:
        self.names.extend(names)
        self.chunks.append(vectors)

    def through(self, step: FrozenStep) -> None:
        self.chunks = [step.linear(chunk) for chunk in self.chunks]
        if step.frozen and step.name not in self.frozen:
            self.frozen.append(step.name)
        if step.bias is not None:
            self.write([f"{step.name}.bias"], step.bias.expand_as(self.chunks[0][:1]))


@dataclass(frozen=True, eq=False)
class DecomposedRun:
    """One run, and how it is decomposed."""

    model: Model
    side: str
    seen: Seen
    positions: tuple[int, ...] | None
    cross: str

    @property
    def stack(self) -> Stack:
        return getattr(self.model, self.side)

    def ledger(self, at: str) -> Ledger:
        """The output of every writer up to `at`, as it arrives there."""
        ledger = self.embeddings()
        for layer, block in enumerate(self.stack):
            path = f"{self.side}.{layer}"
            if at == f"{path}.residual_before":
                return ledger
            for name, part in block_parts(block):
                for names, vectors in self.written_by(f"{path}.{name}", part):
                    ledger.write(names, vectors)
                if isinstance(part, CrossAttention) and self.cross == "encoder":
                    ledger.frozen += [norm for norm in self.memory.frozen if norm not in ledger.frozen]
                if block.wiring is post_norm:
                    ledger.through(self.norm(f"{path}.{name}_norm"))
                if at == f"{path}.{AFTER[name]}":
                    return ledger
        return ledger

    def norm(self, name: str) -> FrozenStep:
        return norm_step(name, self.model.get_submodule(name), upcast(self.seen[f"{name}.scale"]))

    def final_norm(self) -> FrozenStep | None:
        return None if self.stack.final_norm is None else self.norm(f"{self.side}.final_norm")

    @cached_property
    def memory(self) -> Ledger:
        """The writers of the memory that cross-attention reads."""
        encoder = DecomposedRun(self.model, "encoder", self.seen, None, "heads")
        ledger = encoder.ledger("")
        if (final := encoder.final_norm()) is not None:
            ledger.through(final)
        return ledger

    def embeddings(self) -> Ledger:
        name, ledger = embedding_name(self.model, self.side), Ledger()
        part = self.model.get_submodule(name)
        output = self.seen[f"{name}.output"]

        def write(what: str, value: Tensor) -> None:
            value = upcast(value).expand_as(output)
            ledger.write(
                [f"{name}.{what}"], (value if self.positions is None else value[:, list(self.positions)])[None]
            )

        if isinstance(part, PatchEmbedding):
            first = torch.zeros_like(output)
            first[:, 0] = part.class_token
            write("class_token", first)
            write("patches", F.pad(self.seen[f"{name}.patches"], (0, 0, 1, 0)))
            write("positions", self.seen[f"{name}.positions"])
            return ledger
        for what in ("tokens", "segments", "positions"):
            if f"{name}.{what}" in self.seen:
                write(what, self.seen[f"{name}.{what}"])
        if f"{name}.norm.scale" in self.seen:
            scale = upcast(self.seen[f"{name}.norm.scale"])
            scale = scale if self.positions is None else scale[:, list(self.positions)]
            ledger.through(norm_step(f"{name}.norm", self.model.get_submodule(f"{name}.norm"), scale))
        return ledger

    def written_by(self, path: str, part: Any) -> Iterator[tuple[list[str], Tensor]]:
        """The output of one part: of a feed-forward as a whole, of an attention by head, and its bias."""
        if not isinstance(part, Attention):
            yield [path], upcast(self.seen[f"{path}.output"])[None]
            return
        if not isinstance(part.output, Linear):
            raise InputError(
                f"{path} has 8-bit weights, where parts do not add up: load the model with precision='fp32'"
            )
        out = upcast(part.output.weight).unflatten(1, (part.n_heads, -1))  # d_model head d_head
        if isinstance(part, CrossAttention) and self.cross == "source":
            yield from self._by_source(path, out)
        elif isinstance(part, CrossAttention) and self.cross == "encoder":
            yield from self._by_encoder(path, part, out)
        else:
            heads = upcast(self.seen[f"{path}.heads"])
            yield [f"{path}.{head}" for head in range(part.n_heads)], torch.einsum("bhqd,mhd->hbqm", heads, out)
        if part.output.bias is not None:
            like = self.seen[f"{self.side}.0.attention.heads"]
            bias = upcast(part.output.bias).expand(1, len(like), like.shape[2], -1)
            yield [f"{path}.bias"], bias

    def _by_source(self, path: str, out: Tensor) -> Iterator[tuple[list[str], Tensor]]:
        pattern, value = upcast(self.seen[f"{path}.pattern"]), upcast(self.seen[f"{path}.value"])
        for head in range(pattern.shape[1]):
            handed_over = value[:, head] @ out[:, head].T  # batch source d_model
            vectors = torch.einsum("bqs,bsm->sbqm", pattern[:, head], handed_over)
            yield [f"{path}.{head} < {source}" for source in range(len(vectors))], vectors

    def _by_encoder(self, path: str, part: CrossAttention, out: Tensor) -> Iterator[tuple[list[str], Tensor]]:
        pattern, ledger = upcast(self.seen[f"{path}.pattern"]), self.memory
        written, (_, to_value) = torch.cat(ledger.chunks), upcast(part.key_value.weight).chunk(2)
        for head, matrix in enumerate(to_value.unflatten(0, (part.n_heads, -1))):
            through = out[:, head] @ matrix  # from the memory to the stream
            vectors = torch.einsum("bqs,wbsd->wbqd", pattern[:, head], written) @ through.T
            yield [f"{path}.{head} < {writer}" for writer in ledger.names], vectors
            if part.key_value.bias is not None:
                bias = upcast(part.key_value.bias).chunk(2)[1].unflatten(0, (part.n_heads, -1))[head]
                looked = pattern[:, head].sum(-1, keepdim=True)  # 1, or 0 where there is nothing to look at
                yield [f"{path}.{head} < value.bias"], (looked * (out[:, head] @ bias))[None]


def check_eval_mode(model: nn.Module) -> None:
    """Refuses a model in training mode, whose passes are random."""
    if model.training:
        raise InputError("this model is in training mode, with dropout: call model.eval() first")


def check_blocks(model: Model) -> None:
    """Refuses a recurrent model, which has no residual stream."""
    if not has_blocks(model):
        raise InputError(
            f"{model.config.family} is no Transformer, and has no residual stream with heads that write to it: use "
            "inspect, or watch its gates and states (tap_names)"
        )


def check_gradients(model: nn.Module) -> None:
    """Refuses 8-bit weights, through which no gradient flows."""
    if any(isinstance(part, Int8Linear) for part in uncompiled(model).modules()):
        raise InputError(
            "this model's weights are 8-bit integers, through which no gradient flows: load it with precision='fp32'"
        )


def check_model(model: nn.Module, more: Mapping[str, Any]) -> Model:
    """The model without the wrapper of torch.compile. Refuses training mode, and unknown inputs."""
    model = uncompiled(model)
    if not isinstance(model, Model):
        raise InputError(f"{type(model).__name__} is not a model of this library")
    check_eval_mode(model)
    known = inspect.signature(model.hidden).parameters
    for name in more:
        if name not in known or name == "cache":
            raise InputError(f"{name!r} is neither an option here nor an input of {type(model).__name__}")
    return model


def block_parts(block: Block) -> Iterator[tuple[str, Any]]:
    for name in AFTER:
        if getattr(block, name) is not None:
            yield name, getattr(block, name)


def stack_taps(side: str, stack: Stack) -> list[str]:
    """The taps that a decomposition of the stack needs."""
    taps = [f"{side}.*.heads", f"{side}.*.feed_forward.output"]
    for layer, block in enumerate(stack):
        if block.wiring not in (pre_norm, post_norm):
            raise InputError(f"{side}.{layer} has a wiring of its own: only pre_norm and post_norm can be decomposed")
    if any(block.wiring is post_norm for block in stack):
        taps.append(f"{side}.*_norm.scale")
    return taps if stack.final_norm is None else [*taps, f"{side}.final_norm.scale"]


def embedding_name(model: Model, side: str) -> str:
    if not isinstance(model, EncoderDecoderModel):
        return "embedding"
    return "source_embedding" if side == "encoder" else "target_embedding"
