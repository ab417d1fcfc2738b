"""The laws of the forward pass: two ways to the same numbers."""

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
from cutaway.certificate.subject import Subject, batch_of, states, together
from cutaway.model.blocks import Block, has_blocks
from cutaway.model.finite import not_finite
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.positions import Rotary, Sinusoidal
from cutaway.model.precision import with_precision
from cutaway.model.tap import edit

# The length of the error, of that of the answers: a bound that was chosen, not a law (SmolLM2-135M: about 0.12). How
# good an 8-bit model is, its score on real data says.
INT8 = 0.25
ROOM = 128  # tokens of a packed row
SINGLE = 10  # tokens of a long row that are read alone, twice


def weights_are_finite(subject: Subject) -> Measure:
    """Every number of every tensor is one, also where none of the questions gets to."""
    named = [*subject.model.named_parameters(), *subject.model.named_buffers()]
    damaged = not_finite(subject.model)
    why = f"{damaged[0]}" + (f", and {len(damaged) - 1} more" if len(damaged) > 1 else "") if damaged else ""
    what, inputs = "tensors with numbers that are not finite", f"{len(named)} tensors"
    return Measure(value=float(len(damaged)), what=what, inputs=inputs, tolerance=0.0, why=why)


def batch_is_single(subject: Subject) -> Measure:
    """A row's answers do not depend on its neighbours, nor on the padding that they bring."""
    return Measure(value=difference(subject.together, subject.alone), inputs=subject.asked.inputs)


def left_is_right(subject: Subject) -> Measure:
    """Padding may stand before a row or behind it."""
    if subject.asked.pictures is not None:
        raise NotApplicable("pictures are not padded")
    left = together(subject.model, batch_of(subject.model, subject.asked, "left"), long=subject.asked.long)
    return Measure(value=difference(left, subject.together), inputs=subject.asked.inputs)


@torch.no_grad()
def cached_is_uncached(subject: Subject) -> Measure:
    """Reading half of a row at once, then token by token, gives what reading it at once gives; of a long row only the
    tokens behind its half and at its end come alone."""
    if not isinstance(subject.model, DecoderModel):
        raise NotApplicable("no decoder, so no cache")
    steps = [states(subject.model, x, long=subject.asked.long) for x in _cached(subject.model, subject.asked)]
    return Measure(value=difference(steps, subject.states_alone), inputs=subject.asked.inputs)


def _cached(model: DecoderModel, asked: Inputs) -> list[Tensor]:
    rows = asked.targets or asked.rows
    longest = max(map(len, rows))
    if isinstance(model, EncoderDecoderModel):
        source, real = padded_inputs(asked.rows, "right", 0, model.device)
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
    """Half of a row, then its tokens one by one; of a long one those in between at once."""
    half, alone = max(1, len(row) // 2), len(row) - SINGLE
    yield row[:half]
    if alone - half > SINGLE:
        yield from ([id] for id in row[half : half + SINGLE])
        yield row[half + SINGLE : alone]
        half = alone
    yield from ([id] for id in row[half:])


def fused_is_explicit(subject: Subject) -> Measure:
    """Fused kernels give what the formulas give, softmax(QKᵀ / √d) V and those of the norms, when they are written out,
    as they are for whoever edits them."""
    if not has_blocks(subject.model):
        raise NotApplicable("no attention of this family is fused")
    with edit(subject.model, dict.fromkeys(("*.pattern", "*.scale"), lambda value: value)):
        explicit = together(subject.model, subject.batch, long=subject.asked.long)
    return Measure(value=difference(subject.together, explicit), inputs=subject.asked.inputs)


@torch.no_grad()
def packed_is_unpacked(subject: Subject) -> Measure:
    """Several texts in one row do not see each other."""
    model, asked = subject.model, subject.asked
    if asked.pictures is not None or isinstance(model, EncoderDecoderModel):
        raise NotApplicable("this family reads one text in a row")
    if asked.long:  # so much less of the first that both have room in one row
        subject = Subject(model, asked.shortened(len(asked.rows[0]) - len(asked.rows[1])))
        asked = subject.asked
    packs = _packs(asked.rows, sum(map(len, asked.rows)) if asked.long else getattr(model, "max_len", None) or ROOM)
    joined = [[id for i in pack for id in asked.rows[i]] for pack in packs]
    ids, real = padded_inputs(joined, "right", 0, model.device)
    numbers = [[number for number, i in enumerate(pack) for _ in asked.rows[i]] for pack in packs]
    documents, _ = padded_inputs(numbers, "right", -1, model.device)
    more = {}
    if asked.segments:
        segments = [[one for i in pack for one in asked.segments[i]] for pack in packs]
        more["segments"], _ = padded_inputs(segments, "right", 0, model.device)
    hidden = model.hidden(ids, real=real, documents=documents, **more)
    packed: list[Tensor] = []
    for row, pack in enumerate(packs):
        lengths = [len(asked.rows[i]) for i in pack]
        packed += states(model, hidden[row][real[row]], long=asked.long).split(lengths)
    return Measure(value=difference(packed, subject.states_alone), inputs=asked.inputs)


def _packs(rows: list[Ids], room: int) -> list[list[int]]:
    """Numbers of rows, in their order, that fit into one row together."""
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
    """torch.compile changes the speed only."""
    if not has_blocks(subject.model):
        raise NotApplicable("blocks are compiled, and this family has none")
    if torch._dynamo.config.disable:
        raise NotMeasured("torch.compile is switched off: unset TORCH_COMPILE_DISABLE")
    try:
        with _compiled_blocks(subject.model):
            fast = together(subject.model, subject.batch, long=subject.asked.long)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        if _compiles_anything(subject.model.device):
            raise
        raise NotMeasured(f"torch.compile does not work here ({_first_line(error)}): see cutaway doctor") from None
    return Measure(value=difference(fast, subject.together), inputs=subject.asked.inputs)


@contextmanager
def _compiled_blocks(model: Model) -> Iterator[None]:
    """All blocks run the same code, so one is compiled and serves them all, as in training: seconds, not minutes."""
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
    """It takes a C++ compiler, or Triton, which may not be here."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except torch._dynamo.exc.BackendCompilerFailed:
        return False
    return True


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:150]


@torch.no_grad()
def int8_is_near(subject: Subject) -> Measure:
    """Matrices of 8 bits cost a little: how much, and how often the likeliest stays the likeliest. Of a model that has
    them already: each is multiplied as it says."""
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
        raise NotMeasured("every answer is 0, so that there is nothing to be near to")
    value = float((near.double() - exact.double()).norm() / exact.double().norm())
    value = value if math.isfinite(value) else math.nan
    what = "length of the error / length of the answers"
    return Measure(value=value, what=what, inputs=subject.asked.inputs, tolerance=INT8, agreement=agreement)


def products_are_exact(model: Model) -> Measure:
    """A product of whole numbers is one, in a batch as alone, whatever its kernel has packed."""
    found = {name: worst_product(part) for name, part in matrices_of(model).items()}
    worst = max(found, key=lambda name: math.inf if math.isnan(found[name]) else found[name])
    why = "" if found[worst] <= TOLERANCE else f"{worst} is not multiplied as it says"
    return Measure(value=found[worst], inputs=f"{len(found)} 8-bit matrices, each with {ROWS} rows", why=why)


def tables_are_formulas(subject: Subject) -> Measure:
    """Tables that no file holds, of sinusoids and of frequencies, are those of their formulas: a model that was moved,
    cast or made without memory has filled them anew."""
    tables = {name: part for name, part in subject.model.named_modules() if isinstance(part, Rotary | Sinusoidal)}
    if not tables:
        raise NotApplicable("no positions of this model are computed")
    wrong = []
    for name, part in tables.items():
        anew = copy.deepcopy(part)
        anew.fill()
        pairs = zip(part.buffers(), anew.buffers(), strict=True)
        wrong += [name] * any(ours.dtype != theirs.dtype or not ours.equal(theirs) for ours, theirs in pairs)
    what = "tables that are not their formulas"
    why = f"{wrong[0]} is not its formula" if wrong else ""
    return Measure(value=float(len(wrong)), what=what, inputs=f"{len(tables)} tables", tolerance=0.0, why=why)
