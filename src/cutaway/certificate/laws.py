"""The laws of the forward pass: two ways to the same numbers."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from cutaway.certificate.asked import Asked, Ids, answers, batch_of, one_by_one, padded, states, together
from cutaway.certificate.entry import Measure, NotApplicable, NotMeasured, difference
from cutaway.decoding.precision import with_precision
from cutaway.errors import CutawayError
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.tap import edit

# The length of the error, of that of the answers: a bound that was chosen, not a law (SmolLM2-135M: about 0.12). How
# good an 8-bit model is, its score on real data says.
INT8 = 0.25
ROOM = 128  # tokens of a packed row


def batch_is_single(model: Model, asked: Asked) -> Measure:
    """A row's answers do not depend on its neighbours, nor on the padding that they bring."""
    return Measure(value=difference(together(model, asked), one_by_one(model, asked)), inputs=asked.inputs)


def left_is_right(model: Model, asked: Asked) -> Measure:
    """Padding may stand before a row or behind it."""
    if asked.pictures is not None:
        raise NotApplicable("pictures are not padded")
    left, right = (together(model, asked, side=side) for side in ("left", "right"))
    return Measure(value=difference(left, right), inputs=asked.inputs)


@torch.no_grad()
def cached_is_uncached(model: Model, asked: Asked) -> Measure:
    """Reading half of a row at once, then token by token, gives what reading it at once gives."""
    if not isinstance(model, DecoderModel):
        raise NotApplicable("no decoder, so no cache")
    whole = [states(model, hidden) for hidden in _uncached(model, asked)]
    steps = [states(model, hidden) for hidden in _cached(model, asked)]
    return Measure(value=difference(steps, whole), inputs=asked.inputs)


def _uncached(model: DecoderModel, asked: Asked) -> Iterator[Tensor]:
    for i, row in enumerate(asked.targets or asked.rows):
        ids = torch.tensor([row], device=model.device)
        if isinstance(model, EncoderDecoderModel):
            yield model.hidden(torch.tensor([asked.rows[i]], device=model.device), ids)[0]
        else:
            yield model.hidden(ids)[0]


def _cached(model: DecoderModel, asked: Asked) -> list[Tensor]:
    rows = asked.targets or asked.rows
    longest = max(map(len, rows))
    if isinstance(model, EncoderDecoderModel):
        source, real = padded(asked.rows, "right", 0, model.device)
        cache = model.new_memory_cache(model.encode(source, real), real, longest)
    else:
        cache = model.new_cache(len(rows), longest)
    read = model.decode if isinstance(model, EncoderDecoderModel) else model.hidden
    found: list[list[Tensor]] = [[] for _ in rows]
    at = [max(1, len(row) // 2) for row in rows]
    pieces: list[Ids] = [row[:n] for row, n in zip(rows, at, strict=True)]
    while any(pieces):
        ids, real = padded(pieces, "right", 0, model.device)
        hidden = read(ids, real=real, cache=cache)
        for i, piece in enumerate(pieces):
            found[i].append(hidden[i, : len(piece)])
        pieces = [row[n : n + 1] for row, n in zip(rows, at, strict=True)]
        at = [n + 1 for n in at]
    return [torch.cat(parts) for parts in found]


def fused_is_explicit(model: Model, asked: Asked) -> Measure:
    """The fused kernel gives what softmax(QKᵀ / √d) V gives when it is written out, as it is for whoever edits it."""
    fused = together(model, asked)
    with edit(model, {"*.pattern": lambda pattern: pattern}):
        explicit = together(model, asked)
    return Measure(value=difference(fused, explicit), inputs=asked.inputs)


@torch.no_grad()
def packed_is_unpacked(model: Model, asked: Asked) -> Measure:
    """Several texts in one row do not see each other."""
    if asked.pictures is not None or isinstance(model, EncoderDecoderModel):
        raise NotApplicable("this family reads one text in a row")
    packs = _packs(asked.rows, getattr(model, "max_len", None) or ROOM)
    joined = [[id for i in pack for id in asked.rows[i]] for pack in packs]
    ids, real = padded(joined, "right", 0, model.device)
    numbers = [[number for number, i in enumerate(pack) for _ in asked.rows[i]] for pack in packs]
    documents, _ = padded(numbers, "right", -1, model.device)
    more = {}
    if asked.segments:
        segments = [[one for i in pack for one in asked.segments[i]] for pack in packs]
        more["segments"], _ = padded(segments, "right", 0, model.device)
    hidden = model.hidden(ids, real=real, documents=documents, **more)
    packed: dict[int, Tensor] = {}
    for row, pack in enumerate(packs):
        lengths = [len(asked.rows[i]) for i in pack]
        packed |= dict(zip(pack, states(model, hidden[row][real[row]]).split(lengths), strict=True))
    return Measure(
        value=difference([packed[i] for i in range(len(asked))], list(_unpacked(model, asked))), inputs=asked.inputs
    )


def _packs(rows: list[Ids], room: int) -> list[list[int]]:
    """Numbers of rows that fit into one row together."""
    packs: list[list[int]] = []
    left = 0
    for i, row in enumerate(rows):
        if len(row) > left:
            packs.append([])
            left = room
        packs[-1].append(i)
        left -= len(row)
    return packs


def _unpacked(model: Model, asked: Asked) -> Iterator[Tensor]:
    for i, row in enumerate(asked.rows):
        more = {"segments": torch.tensor([asked.segments[i]], device=model.device)} if asked.segments else {}
        yield states(model, model.hidden(torch.tensor([row], device=model.device), **more)[0])


@torch.no_grad()
def compiled_is_eager(model: Model, asked: Asked) -> Measure:
    """torch.compile changes the speed only."""
    given, more, real = batch_of(model, asked, "right")
    compiled: Callable[..., Tensor] = torch.compile(model.hidden, dynamic=False)
    try:
        fast = compiled(*given, **more)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        raise NotMeasured(f"torch.compile does not work here ({_first_line(error)}): see cutaway doctor") from None
    finally:
        torch.compiler.reset()
    return Measure(value=difference(answers(model, fast, real), together(model, asked)), inputs=asked.inputs)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:150]


def int8_is_near(model: Model, asked: Asked) -> Measure:
    """Matrices of 8 bits cost a little: how much, and how often the likeliest stays the likeliest."""
    try:
        small = with_precision(copy.deepcopy(model), "int8")
    except CutawayError as error:
        raise NotMeasured(str(error)) from None
    with torch.no_grad():
        given, more, real = batch_of(model, asked, "right")
        exact, near = (it.head(it.hidden(*given, **more), real) for it in (model, small))
    if exact.ndim == 3 and real is not None:
        exact, near = exact[real], near[real]
    scores = model.config.task not in ("hidden", "regress")
    agreement = float((exact.argmax(dim=-1) == near.argmax(dim=-1)).double().mean()) if scores else None
    value = float((near.double() - exact.double()).norm() / exact.double().norm())
    return Measure(value=value, inputs=asked.inputs, tolerance=INT8, agreement=agreement)
