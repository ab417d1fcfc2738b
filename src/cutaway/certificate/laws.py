"""The laws of the forward pass: two ways of computing the same numbers."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from types import MethodType

import torch
from torch import Tensor

from cutaway.certificate.eight_bits import ROWS, has_8_bits, matrices_of, worst_product
from cutaway.certificate.entry import TOLERANCE, Measure, NotApplicable, NotMeasured, difference
from cutaway.certificate.inputs import Ids, Inputs, padded_inputs
from cutaway.certificate.subject import Subject, batch_answers, batch_of, by_position
from cutaway.model.blocks import Block, has_blocks
from cutaway.model.finite import not_finite
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.positions import Rotary, Sinusoidal
from cutaway.model.precision import with_precision
from cutaway.model.tap import edit

# ‖error‖ / ‖results‖: a bound that was chosen, not a law (SmolLM2-135M: about 0.12). The quality of an 8-bit model is
# its score on real data.
INT8 = 0.25
ROOM = 128  # tokens of a packed row
SINGLE = 10  # tokens of a long row that are read one by one, in its middle and at its end


def weights_are_finite(subject: Subject) -> Measure:
    """Every number of every tensor is finite, also those that no input reaches."""
    named = [*subject.model.named_parameters(), *subject.model.named_buffers()]
    damaged = not_finite(subject.model)
    why = f"{damaged[0]}" + (f", and {len(damaged) - 1} more" if len(damaged) > 1 else "") if damaged else ""
    what, inputs = "tensors with numbers that are not finite", f"{len(named)} tensors"
    return Measure(value=float(len(damaged)), what=what, inputs=inputs, tolerance=0.0, why=why)


def batch_is_single(subject: Subject) -> Measure:
    """The results of a row do not depend on the other rows of a batch, nor on padding."""
    return Measure(value=difference(subject.batched, subject.single), inputs=subject.inputs.description)


def left_is_right(subject: Subject) -> Measure:
    """Padding may be on the left or on the right."""
    if subject.inputs.pictures is not None:
        raise NotApplicable("images are not padded")
    left = batch_answers(subject.model, batch_of(subject.model, subject.inputs, "left"), long=subject.inputs.long)
    return Measure(value=difference(left, subject.batched), inputs=subject.inputs.description)


@torch.no_grad()
def cached_is_uncached(subject: Subject) -> Measure:
    """Half of a row at once and the rest token by token give the same as the whole row at once.

    In a long row, only some tokens after the first half and at the end are read one by one.
    """
    if not isinstance(subject.model, DecoderModel):
        raise NotApplicable("no decoder, so no cache")
    steps = [by_position(subject.model, x, long=subject.inputs.long) for x in _cached(subject.model, subject.inputs)]
    return Measure(value=difference(steps, subject.single_by_position), inputs=subject.inputs.description)


def _cached(model: DecoderModel, inputs: Inputs) -> list[Tensor]:
    rows = inputs.targets or inputs.rows
    longest = max(map(len, rows))
    if isinstance(model, EncoderDecoderModel):
        source, real = padded_inputs(inputs.rows, "right", 0, model.device)
        cache = model.new_memory_cache(model.encode(source, real), real, longest)
    else:
        cache = model.new_cache(len(rows), longest)
    read = model.decode if isinstance(model, EncoderDecoderModel) else model.hidden
    found: list[list[Tensor]] = [[] for _ in rows]
    for pieces in zip_longest(*(in_pieces(row) for row in rows), fillvalue=()):
        ids, real = padded_inputs([list(piece) for piece in pieces], "right", 0, model.device)
        hidden = read(ids, real=real, cache=cache)
        for i, piece in enumerate(pieces):
            found[i].append(hidden[i, : len(piece)])
    return [torch.cat(parts) for parts in found]


def in_pieces(row: Ids) -> Iterator[Ids]:
    """Half of a row, then its tokens one by one; in a long row, those in between at once."""
    half, alone = max(1, len(row) // 2), len(row) - SINGLE
    yield row[:half]
    if alone - half > SINGLE:
        yield from ([id] for id in row[half : half + SINGLE])
        yield row[half + SINGLE : alone]
        half = alone
    yield from ([id] for id in row[half:])


def fused_is_explicit(subject: Subject) -> Measure:
    """Fused kernels give the same as the formulas of attention and norms, which are used when their taps are edited."""
    if not has_blocks(subject.model):
        raise NotApplicable("this family has no fused kernels")
    with edit(subject.model, dict.fromkeys(("*.pattern", "*.scale"), lambda value: value)):
        explicit = batch_answers(subject.model, subject.batch, long=subject.inputs.long)
    return Measure(value=difference(subject.batched, explicit), inputs=subject.inputs.description)


@torch.no_grad()
def packed_is_unpacked(subject: Subject) -> Measure:
    """Several texts packed into one row do not see each other."""
    model, inputs = subject.model, subject.inputs
    if inputs.pictures is not None or isinstance(model, EncoderDecoderModel):
        raise NotApplicable("this family reads one text per row")
    if inputs.long:  # the first row is shortened so that both fit into one row
        subject = Subject(model, inputs.shortened(len(inputs.rows[0]) - len(inputs.rows[1])))
        inputs = subject.inputs
    packs = _packs(inputs.rows, sum(map(len, inputs.rows)) if inputs.long else getattr(model, "max_len", None) or ROOM)
    joined = [[id for i in pack for id in inputs.rows[i]] for pack in packs]
    ids, real = padded_inputs(joined, "right", 0, model.device)
    numbers = [[number for number, i in enumerate(pack) for _ in inputs.rows[i]] for pack in packs]
    documents, _ = padded_inputs(numbers, "right", -1, model.device)
    more = {}
    if inputs.segments:
        segments = [[one for i in pack for one in inputs.segments[i]] for pack in packs]
        more["segments"], _ = padded_inputs(segments, "right", 0, model.device)
    hidden = model.hidden(ids, real=real, documents=documents, **more)
    packed: list[Tensor] = []
    for row, pack in enumerate(packs):
        lengths = [len(inputs.rows[i]) for i in pack]
        packed += by_position(model, hidden[row][real[row]], long=inputs.long).split(lengths)
    return Measure(value=difference(packed, subject.single_by_position), inputs=inputs.description)


def _packs(rows: list[Ids], room: int) -> list[list[int]]:
    """The rows, in their order, in groups that fit into one row."""
    packs: list[list[int]] = []
    left = 0
    for i, row in enumerate(rows):
        if len(row) > left:
            packs.append([])
            left = room
        packs[-1].append(i)
        left -= len(row)
    return packs


def compiled_is_eager(subject: Subject) -> Measure:
    """torch.compile changes the speed and nothing else."""
    if not has_blocks(subject.model):
        raise NotApplicable("this family has no blocks to compile")
    if torch._dynamo.config.disable:
        raise NotMeasured("torch.compile is switched off: unset TORCH_COMPILE_DISABLE")
    try:
        with _compiled_blocks(subject.model):
            fast = batch_answers(subject.model, subject.batch, long=subject.inputs.long)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        if _compiles_anything(subject.model.device):
            raise
        raise NotMeasured(f"torch.compile does not work here ({_first_line(error)}): see cutaway doctor") from None
    return Measure(value=difference(fast, subject.batched), inputs=subject.inputs.description)


@contextmanager
def _compiled_blocks(model: Model) -> Iterator[None]:
    """All blocks run the same code, so one compiled forward serves all, as in training: seconds, not minutes."""
    fast = torch.compile(Block.forward, dynamic=False, fullgraph=True)
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    try:
        for block in blocks:
            block.forward = MethodType(fast, block)  # type: ignore[method-assign]
        yield
    finally:
        for block in blocks:
            del block.forward
        torch.compiler.reset()


def _compiles_anything(device: torch.device) -> bool:
    """Whether torch.compile works here at all: it needs a C++ compiler, or Triton."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except torch._dynamo.exc.BackendCompilerFailed:
        return False
    return True


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:150]


@torch.no_grad()
def int8_is_near(subject: Subject) -> Measure:
    """How much 8-bit matrices change the results, and how often the most likely token or class stays the same.

    For a model that has 8-bit matrices already: each product is correct.
    """
    model, (given, more, real) = subject.model, subject.batch
    if has_8_bits(model):
        return products_are_exact(model)
    small = with_precision(copy.deepcopy(model), "int8")
    exact, near = model.head(subject.hidden, real), small.head(small.hidden(*given, **more), real)
    if exact.ndim == 3 and real is not None:
        exact, near = exact[real], near[real]
    scores = model.config.task not in ("hidden", "regress")
    agreement = float((exact.argmax(dim=-1) == near.argmax(dim=-1)).double().mean()) if scores else None
    if not exact.any():
        raise NotMeasured("all results are 0, so that there is nothing to be near to")
    value = float((near.double() - exact.double()).norm() / exact.double().norm())
    value = value if math.isfinite(value) else math.nan
    what = "length of the error / length of the answers"
    return Measure(value=value, what=what, inputs=subject.inputs.description, tolerance=INT8, agreement=agreement)


def products_are_exact(model: Model) -> Measure:
    """Every product with an 8-bit matrix is correct, in a batch and alone, in every kernel."""
    found = {name: worst_product(part) for name, part in matrices_of(model).items()}
    worst = max(found, key=lambda name: math.inf if math.isnan(found[name]) else found[name])
    why = "" if found[worst] <= TOLERANCE else f"the product with {worst} is wrong"
    return Measure(value=found[worst], inputs=f"{len(found)} 8-bit matrices, each with {ROWS} rows", why=why)


def tables_are_formulas(subject: Subject) -> Measure:
    """Tables that are computed and not stored, sinusoids and rotary frequencies, are still those of their formulas.

    They have to be computed again when a model is moved, cast, or given memory.
    """
    tables = {name: part for name, part in subject.model.named_modules() if isinstance(part, Rotary | Sinusoidal)}
    if not tables:
        raise NotApplicable("this model has no computed tables of positions")
    wrong = []
    for name, part in tables.items():
        anew = copy.deepcopy(part)
        anew.fill()
        pairs = zip(part.buffers(), anew.buffers(), strict=True)
        wrong += [name] * any(ours.dtype != theirs.dtype or not ours.equal(theirs) for ours, theirs in pairs)
    what = "tables that differ from their formulas"
    why = f"{wrong[0]} differs from its formula" if wrong else ""
    return Measure(value=float(len(wrong)), what=what, inputs=f"{len(tables)} tables", tolerance=0.0, why=why)
