"""What a model is made of and what it costs, before anything is trained or allocated.

    description = describe(config_of("gpt2"), batch=1, length=1024)
    description.parameters                 # 124,439,808
    description.flops.forward // description.n_tokens
    description.memory.cache_per_token     # 2 · n_layers · n_kv_heads · d_head · bytes

Everything is counted on the model itself, built on the meta device: the tree from its parts, FLOPs and activations from
its forward pass (`cost`), the cache from the cache that it would allocate. So no formula can disagree with the code.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.families import bare, sizes
from cutaway.inside.cost import Meter, measured_cost
from cutaway.model.config import Config
from cutaway.model.embeddings import PatchEmbedding, TokenMatrix
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model

DEFAULT_LENGTH = 1024  # where neither the caller nor the model's max_len says less


@dataclass(frozen=True)
class PartCount:
    """One part of the tree; `times` equal blocks stand in one entry, and all its numbers are those of one block."""

    name: str
    kind: str
    times: int
    parameters: int
    flops: int
    shapes: dict[str, tuple[int, ...]]  # of its own weights and tables
    tied_to: str | None  # whose matrix it uses in place of one of its own
    computed: bool  # its table is computed, not learned
    parts: tuple["PartCount", ...]


@dataclass(frozen=True)
class Flops:
    """FLOPs of matrix products in one forward pass over the whole batch."""

    products: int  # with weights
    look_ups: int  # every query with every key, and with the values: this part grows with the square of the length

    @property
    def forward(self) -> int:
        return self.products + self.look_ups

    @property
    def training(self) -> int:
        """Forward, and twice that backward: once for the inputs' gradients, once for the weights'."""
        return 3 * self.forward


@dataclass(frozen=True)
class Memory:
    """Bytes. A training step holds the first five, answering holds weights, `peak` and the cache."""

    weights: int
    gradients: int
    adam: int  # its two moments, in the weights' dtype as torch.optim.AdamW keeps them
    kept: int  # activations that the backward pass needs, and the output
    output: int  # the part of `kept` that is the output: logits, mostly
    peak: int  # activations without gradients, at the worst moment
    cache: int  # keys and values of the whole batch, and those of the source where there is one
    cache_per_token: int
    cache_per_source_token: int

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.adam + self.kept

    @property
    def inference(self) -> int:
        return self.weights + self.peak + self.cache


@dataclass(frozen=True)
class Description:
    """Numbers for people, `to_dict` for programs."""

    config: Config
    dtype: str
    batch: int
    length: int
    source_length: int | None  # of an encoder–decoder
    parameters: int
    parts: tuple[PartCount, ...]
    flops: Flops
    memory: Memory

    @property
    def n_tokens(self) -> int:
        """All that is read in one pass: source and target alike."""
        return self.batch * (self.length + (self.source_length or 0))

    def to_dict(self) -> dict[str, Any]:
        flops = {**asdict(self.flops), "forward": self.flops.forward, "training": self.flops.training}
        return {
            **asdict(self),
            "config": self.config.to_dict(),
            "n_tokens": self.n_tokens,
            "flops": flops,
            "flops_per_token": {name: n / self.n_tokens for name, n in flops.items()},
            "memory": {
                **asdict(self.memory),
                "training": self.memory.training,
                "inference": self.memory.inference,
            },
        }


def named_config(name: str) -> Config:
    """The config of a named size, or of the model at a path or of this name; ./gpt2 means a folder called as a size."""
    from difflib import get_close_matches

    from cutaway.bundled import find, names, said
    from cutaway.checkpoints import read_config

    known = sizes()
    if name in known:
        return known[name]
    if not Path(name).exists() and name not in names():
        near = get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
        sizes_here = f"sizes are called {', '.join(near)}{said('; models are called {}', name)}"
        raise InputError(f"{name!r} is no file or folder, and no named size; {sizes_here}")
    return read_config(find(name))


@checked
def describe(
    what: Config | Model | str | Path,
    *,
    batch: int = 1,
    length: int | None = None,
    source_length: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Description:
    """Builds the model on the meta device, runs it once for training and once for inference, and counts the costs.

    `what` is a model, its config, a named size such as "gpt2", or the name, folder or file of a model.

    >>> describe("gpt2").parameters
    124439808
    """
    config = named_config(str(what)) if isinstance(what, str | Path) else what
    config = config.config if isinstance(config, Model) else config
    model = bare(config).to(dtype)
    inputs = example_inputs(model, batch, length, source_length)
    with measured_cost(model, *inputs, gradients=True) as meter:
        hidden = model.hidden(*inputs)
        output = model.head(hidden)
        kept, length = meter.alive, hidden.shape[1]
    del hidden
    with measured_cost(model, *inputs, gradients=False) as meter:
        model(*inputs)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    translates = isinstance(model, EncoderDecoderModel)
    return Description(
        config=config,
        dtype=str(dtype).removeprefix("torch."),
        batch=batch,
        length=length,
        source_length=inputs[0].shape[1] if translates else None,
        parameters=model.n_parameters(),
        parts=_parts(model, meter),
        flops=Flops(meter.products.total(), meter.look_ups.total()),
        memory=Memory(
            weights=weights,
            gradients=weights,
            adam=2 * weights,
            kept=kept,
            output=output.nbytes,
            peak=meter.peak,
            **_cache_bytes(model, inputs),
        ),
    )


def example_inputs(model: Model, batch: int, length: int | None, source_length: int | None) -> tuple[Tensor, ...]:
    """What this model reads, as shapes on the meta device."""
    if batch < 1:
        raise InputError(f"batch={batch} is not at least 1")
    if source_length is not None and not isinstance(model, EncoderDecoderModel):
        raise InputError(f"{model.config.family} reads no source: leave the source's length out")
    if isinstance(part := getattr(model, "embedding", None), PatchEmbedding):
        if length is not None and length != len(part.positions):
            raise InputError(
                f"{model.config.family} always reads {len(part.positions)} positions, the patches of a picture and the "
                "class token: leave the length out, or change image_size or patch_size"
            )
        shape = (batch, part.n_channels, part.image_size, part.image_size)
        return (torch.empty(shape, dtype=model.dtype, device="meta"),)
    if length is None:
        length = min(getattr(model, "max_len", None) or DEFAULT_LENGTH, DEFAULT_LENGTH)
    lengths = [length] if not isinstance(model, EncoderDecoderModel) else [source_length or length, length]
    return tuple(torch.empty(batch, n, dtype=torch.long, device="meta") for n in lengths)


def _cache_bytes(model: Model, inputs: tuple[Tensor, ...]) -> dict[str, int]:
    """The keys and values of a cache that holds these inputs: of the target's tokens, and of the source's."""
    if not isinstance(model, DecoderModel):
        return {"cache": 0, "cache_per_token": 0, "cache_per_source_token": 0}
    batch, length = inputs[-1].shape
    across = 0
    with torch.no_grad():
        cache = model.new_cache(batch, length)
        if isinstance(model, EncoderDecoderModel):
            cache = model.new_memory_cache(model.encode(inputs[0]), None, length)
            across = sum(kept.nbytes for pair in cache.cross for kept in pair)
    own = sum(kept.nbytes for kept in (*cache.keys, *cache.values))
    return {
        "cache": own + across,
        "cache_per_token": own // inputs[-1].numel(),
        "cache_per_source_token": across // inputs[0].numel(),
    }


def _parts(model: Model, meter: Meter) -> tuple[PartCount, ...]:
    names = {id(parameter): name.removesuffix(".weight") for name, parameter in model.named_parameters()}
    return _children(model, "", meter, names)


def _children(part: nn.Module, path: str, meter: Meter, names: dict[int, str]) -> tuple[PartCount, ...]:
    """The parts inside, in the order in which they run; what the pass leaves out stands last."""
    inner = {f"{path}.{name}".lstrip("."): child for name, child in part.named_children()}
    in_order = sorted(inner, key=lambda name: meter.order.get(name, len(meter.order)))
    return _folded(_count(name, inner[name], meter, names) for name in in_order)


def _count(path: str, part: nn.Module, meter: Meter, names: dict[int, str]) -> PartCount:
    learned = {name: tuple(weight.shape) for name, weight in part.named_parameters(recurse=False)}
    computed = {name: tuple(table.shape) for name, table in part.named_buffers(recurse=False)}
    parts = _children(part, path, meter, names)
    if parts:  # beside other parts a weight gets a line of its own
        parts = (*(_weight(name, shape) for name, shape in learned.items()), *parts)
    return PartCount(
        name=path.rpartition(".")[2],
        kind=type(part).__name__,
        times=1,
        parameters=sum(parameter.numel() for parameter in part.parameters()),
        flops=meter.flops(path),
        shapes={} if parts else learned | computed,
        tied_to=names[id(part.matrix)] if isinstance(part, TokenMatrix) and part.weight is None else None,
        computed=bool(computed),
        parts=parts,
    )


def _weight(name: str, shape: tuple[int, ...]) -> PartCount:
    return PartCount(name, "Parameter", 1, prod(shape), 0, {name: shape}, None, False, ())


def _folded(parts: Iterable[PartCount]) -> tuple[PartCount, ...]:
    """Equal blocks in a row become one entry, 0…11. What holds no numbers, such as dropout, is left out."""
    runs: list[list[PartCount]] = []
    for part in parts:
        if not part.shapes and not part.parts and part.tied_to is None:
            continue
        if runs and part.name.isdecimal() and replace(part, name="") == replace(runs[-1][0], name=""):
            runs[-1].append(part)
        else:
            runs.append([part])
    return tuple(
        run[0] if len(run) == 1 else replace(run[0], name=f"{run[0].name}…{run[-1].name}", times=len(run))
        for run in runs
    )
