"""Taps: every value that the lecture names can be read or replaced while the model runs.

A part writes `x = self.tap("pattern", x)`. If nobody watches, this is one comparison, and `torch.compile` leaves
nothing of it in the graph. Inside `with watch(model, "decoder.*.attention.pattern")` the value is kept; inside
`with edit(model, {...})` it is replaced.

The watchers are a module-level tuple, because forward hooks added after `torch.compile` are never called and a
ContextVar breaks the graph. A global is guarded by the compiler, which compiles once more for a watched run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from threading import Lock, get_ident
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from cutaway.arguments import checked
from cutaway.errors import InputError
from cutaway.model.device import usable_device

M = TypeVar("M", bound=nn.Module)

Edit = Callable[[Tensor], Tensor]


class Part(nn.Module):
    """A module whose named values can be watched. `taps` says which, and what each one is."""

    taps: Mapping[str, str] = {}

    def tap(self, name: str, value: Tensor) -> Tensor:
        """Returns `value`, which those who watch `name` of this part may read or replace."""
        if not _watchers:
            return value
        for watcher in _watchers:
            value = watcher.see((id(self), name), value)
        return value

    def reads(self, *names: str) -> bool:
        """True if one of these taps is read, so that a value that nothing else needs has to be computed."""
        return _watchers != () and any((id(self), name) in watcher.reads for watcher in _here() for name in names)

    def edits(self, *names: str) -> bool:
        """True if one of these taps is replaced, so that the output has to be computed from its value."""
        return _watchers != () and any((id(self), name) in watcher.edits for watcher in _here() for name in names)


class Seen(dict[str, Any]):
    """The values that a watch has collected, by the name of the tap."""

    def __missing__(self, name: str) -> Any:
        seen = f"seen were {', '.join(self)}" if self else "nothing was: run the model inside the watch"
        raise InputError(f"no value of {name!r} was seen: {seen}")


@dataclass(frozen=True)
class _Keeping:
    """Which part of a value is kept, and where."""

    all: bool = False
    positions: tuple[int, ...] | None = None
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None

    def part_of(self, name: str, value: Tensor, decoding: "_Decoding | None") -> Tensor:
        """The chosen positions: the last axis but one of everything that has a sequence (… seq d_model, … head seq
        d_head, … head query key). A sequence as one vector, and the scores of classes, are kept whole."""
        if self.positions is not None and value.ndim > 2:
            length = 1 if decoding is not None and decoding.hypotheses else value.shape[-2]
            for position in self.positions:
                if not -length <= position < length:
                    raise InputError(f"position {position} of {name!r}: this pass has {length}, 0 … {length - 1}")
            if decoding is None or not decoding.hypotheses:
                value = torch.stack([value.select(-2, position) for position in self.positions], dim=-2)
        value = value.clone() if decoding is not None else value
        return value if self.device is None and self.dtype is None else value.to(self.device, self.dtype)


@dataclass(frozen=True)
class _Decoding:
    """A step of an engine. Values are copied, because later steps write into its cache."""

    hypotheses: bool  # the axis of positions has the hypotheses of a text, all of them at the last position


class _Watcher:
    """One watch or edit. Taps are identified by part, not by name, so that another model may run inside a watch."""

    thread: int | None = None  # the only one that is watched; None: all of them

    def __init__(self, model: nn.Module, patterns: Mapping[str, Edit | None], keeping: _Keeping) -> None:
        self.model, self.keeping, self.seen = uncompiled(model), keeping, Seen()
        self.decoding: _Decoding | None = None
        self.reads: dict[tuple[int, str], str] = {}
        self.edits: dict[tuple[int, str], tuple[str, Edit]] = {}
        taps = _all_taps(model)
        for pattern, replace in patterns.items():
            matching = [name for name in taps if fnmatchcase(name, pattern)]
            if not matching:
                raise InputError(f"no tap matches {pattern!r}: {_nearest(pattern, taps) or 'this model has no taps'}")
            for name in matching:
                key, _ = taps[name]
                if replace is None:
                    self.reads[key] = name
                elif key in self.edits:
                    raise InputError(f"two patterns edit {name!r}: give each tap one function")
                else:
                    self.edits[key] = (name, replace)

    def see(self, key: tuple[int, str], value: Tensor) -> Tensor:
        if key in self.edits:
            name, replace = self.edits[key]
            edited = replace(value)
            if edited is None:
                raise InputError(f"the edit of {name!r} returned None: return the new value")
            if edited.shape != value.shape or edited.dtype != value.dtype:
                raise InputError(
                    f"the edit of {name!r} turned {value.dtype} {tuple(value.shape)} into {edited.dtype} "
                    f"{tuple(edited.shape)}: it has to keep both"
                )
            value = edited
        if key in self.reads:
            name = self.reads[key]
            kept = self.keeping.part_of(name, value, self.decoding)
            if not self.keeping.all:
                self.seen[name] = kept
            elif name in self.seen:
                self.seen[name].append(kept)
            else:
                self.seen[name] = [kept]
        return value


class StepWatch(_Watcher):
    """Keeps what its own thread sees in one pass after another, the last value of each tap, without a copy.

    For an engine that takes out the rows of those who asked, while other threads run the same model unwatched:

        watch = StepWatch(model, ["decoder.*.cross.pattern"])     # made once, since finding the taps takes a while
        with watch.installed():
            …                                                     # a step; then watch.seen
    """

    def __init__(self, model: nn.Module, patterns: Sequence[str]) -> None:
        super().__init__(model, dict.fromkeys(patterns), _Keeping())

    @property
    def names(self) -> frozenset[str]:
        """The taps that match."""
        return frozenset(self.reads.values())

    @contextmanager
    def installed(self) -> Iterator[Seen]:
        self.thread = get_ident()
        self.seen.clear()
        with _installed(self):
            yield self.seen

    def see(self, key: tuple[int, str], value: Tensor) -> Tensor:
        if self.thread == get_ident() and key in self.reads:
            self.seen[self.reads[key]] = value
        return value


_watchers: tuple[_Watcher, ...] = ()  # a tuple, not a stack: watches in several threads end in any order
_installing = Lock()  # so that no watcher is lost, or left, when two threads change the tuple at once


def _here() -> tuple[_Watcher, ...]:
    """Those that watch this thread."""
    return tuple(watcher for watcher in _watchers if watcher.thread is None or watcher.thread == get_ident())


def watching(model: nn.Module | None = None) -> bool:
    """True inside a `watch` or `edit` (of this model): CUDA graphs, which hide the values, must not be used then."""
    return _watchers != () and any(model is None or watcher.model is uncompiled(model) for watcher in _here())


@contextmanager
def decoding(model: nn.Module, *, hypotheses: bool) -> Iterator[None]:
    """Inside this context, an engine is decoding, which changes the meaning of positions."""
    watchers = [watcher for watcher in _watchers if watcher.model is uncompiled(model)]
    for watcher in watchers:
        watcher.decoding = _Decoding(hypotheses)
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.decoding = None


@checked
@contextmanager
def watch(
    model: nn.Module,
    *patterns: str,
    keep: Literal["last", "all"] = "last",
    positions: Sequence[int] | None = None,
    to: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Iterator[Seen]:
    """Collects the values of the taps that match, and changes no bit of any output. (Except that a graph compiled for a
    GPU is fused differently when it is watched, which may change the last bit.)

        with watch(model, "decoder.*.cross.pattern") as seen:
            model(source, target)
        seen["decoder.0.cross.pattern"]  # batch head query key

    `*` matches anything. `keep="all"` gives a list with one value for each pass, for instance for each generated token.
    A compiled model is compiled once more for each new set of taps; beyond torch's limit of eight it runs uncompiled.

    To save memory in a long run, keep only some `positions` of each pass, such as [-1] for the last, and use `to="cpu"`
    and `dtype`. Positions count padding. They are those of the source for the encoder and for keys and values of
    cross-attention, those of the queries for scores and patterns, and those of the target elsewhere.

    Generation with a cache is one pass over the prompt without its last token, and one pass with a single position for
    each token. In a beam search, the axis of positions has the hypotheses of a text instead; they all are at the last
    position, and [-1] keeps them all. Keys are then the slots of the cache; slots of other hypotheses have pattern 0.

    A watch or an edit belongs to the model, whichever thread runs it. To look inside for several users of one model,
    take one after the other, or submit their jobs to a `cutaway.decoding.Scheduler`, which keeps their values apart.
    """
    if not patterns:
        raise InputError('nothing to watch: give at least one tap, such as "decoder.*.attention.pattern"')
    if positions is not None and not positions:
        raise InputError(f"positions={positions!r}: give at least one whole number, such as [-1] for the last position")
    to = None if to is None else usable_device(to)
    keeping = _Keeping(keep == "all", None if positions is None else tuple(positions), to, dtype)
    with _installed(_Watcher(model, dict.fromkeys(patterns), keeping)) as watcher:
        yield watcher.seen


@checked
@contextmanager
def edit(model: nn.Module, edits: Mapping[str, Any]) -> Iterator[None]:
    """Replaces the value of every tap that matches a pattern by what its function returns.

    edit(model, {"decoder.3.attention.heads": torch.zeros_like})  # removes the heads of block 3
    """
    for pattern, replace in edits.items():
        if not callable(replace):
            raise InputError(f"the edit of {pattern!r} is a {type(replace).__name__}: give a function of the value")
    with _installed(_Watcher(model, edits, _Keeping())):
        yield


@checked
def tap_names(model: nn.Module) -> dict[str, str]:
    """The name of every tap of the model, and what its value is."""
    return {name: meaning for name, (_, meaning) in _all_taps(model).items()}


def uncompiled(model: M) -> M:
    """The model inside the wrapper of torch.compile."""
    return getattr(model, "_orig_mod", model)


def _all_taps(model: nn.Module) -> dict[str, tuple[tuple[int, str], str]]:
    taps = {}
    for path, part in model.named_modules():
        if isinstance(part, Part):
            # torch.compile and DistributedDataParallel add names to the path
            names = [name for name in path.split(".") if name not in ("", "_orig_mod", "module")]
            for tap, meaning in part.taps.items():
                taps[".".join([*names, tap])] = ((id(part), tap), meaning)
    return taps


@contextmanager
def _installed(watcher: _Watcher) -> Iterator[_Watcher]:
    global _watchers
    with _installing:
        _watchers = (*_watchers, watcher)
    try:
        yield watcher
    finally:
        with _installing:
            _watchers = tuple(other for other in _watchers if other is not watcher)


def _nearest(pattern: str, names: Mapping[str, Any]) -> str:
    near = get_close_matches(pattern, list(names), n=3, cutoff=0.3) or list(names)[:3]
    return f"did you mean {', '.join(near)}? tap_names(model) lists all {len(names)}" if near else ""
