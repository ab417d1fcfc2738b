"""Taps: every value that the lecture names can be read, or replaced, while the model works.

A part writes `x = self.tap("pattern", x)`. Unwatched, that is one comparison and the value itself; `torch.compile`
sees a constant and leaves nothing of it in the graph. Inside `with watch(model, "decoder.*.attention.pattern")` the
value is kept; inside `with edit(model, {...})` it is replaced.

Why one module-level watcher: forward hooks added after `torch.compile` never fire and a ContextVar breaks the graph,
but a global is guarded by the compiler, which compiles once more for a watched run, without a break.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal

from torch import Tensor, nn

from cutaway.errors import InputError

Edit = Callable[[Tensor], Tensor]


class Part(nn.Module):
    """A module whose named values can be watched. `taps` says which, and what each one is."""

    taps: Mapping[str, str] = {}

    def tap(self, name: str, value: Tensor) -> Tensor:
        """Hands `value` on, past whoever watches this part's `name`."""
        if _watcher is None:
            return value
        return _watcher.see((id(self), name), value)

    def reads(self, *names: str) -> bool:
        """True when somebody reads one of these taps, so that a value nobody else needs is worth computing."""
        return _watcher is not None and any(_watcher.reads_tap((id(self), name)) for name in names)

    def edits(self, *names: str) -> bool:
        """True when somebody replaces one of these taps, so that the value has to be on the way to the output."""
        return _watcher is not None and any(_watcher.edits_tap((id(self), name)) for name in names)


class Seen(dict[str, Any]):
    """What a watch has collected: tap name → value."""

    def __missing__(self, name: str) -> Any:
        raise InputError(f"no value of {name!r} was seen: {_nearest(name, self) or 'nothing was; run the model first'}")


class _Watcher:
    """Who looks at which taps. Keyed by part, not by name, so that a second model may run inside the same watch."""

    def __init__(
        self,
        reads: dict[tuple[int, str], str],
        edits: dict[tuple[int, str], Edit],
        outer: "_Watcher | None",
        keep: str,
    ) -> None:
        self.reads, self.edits, self.outer, self.keep = reads, edits, outer, keep
        self.seen = Seen()

    def see(self, key: tuple[int, str], value: Tensor) -> Tensor:
        if self.outer is not None:
            value = self.outer.see(key, value)
        if key in self.edits:
            value = self.edits[key](value)
        if key in self.reads:
            name = self.reads[key]
            if self.keep == "last":
                self.seen[name] = value
            elif name in self.seen:
                self.seen[name].append(value)
            else:
                self.seen[name] = [value]
        return value

    def reads_tap(self, key: tuple[int, str]) -> bool:
        return key in self.reads or (self.outer is not None and self.outer.reads_tap(key))

    def edits_tap(self, key: tuple[int, str]) -> bool:
        return key in self.edits or (self.outer is not None and self.outer.edits_tap(key))


_watcher: _Watcher | None = None


def watching() -> bool:
    """True inside a `watch` or an `edit`: a captured replay would hide the values, so do not replay."""
    return _watcher is not None


@contextmanager
def watch(model: nn.Module, *patterns: str, keep: Literal["last", "all"] = "last") -> Iterator[Seen]:
    """Collects the taps that match, and changes no bit of any output. (Except that a graph compiled for a GPU is fused
    in another way when it is watched, which may show in the last bit.)

        with watch(model, "decoder.*.cross.pattern") as seen:
            model(source, target)
        seen["decoder.0.cross.pattern"]  # batch head query key

    `*` stands for anything. `keep="all"` gives a list with one value per pass, for instance per generated token.
    """
    with _installed(model, dict.fromkeys(patterns), keep) as watcher:
        yield watcher.seen


@contextmanager
def edit(model: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Replaces every tap that matches a pattern by what its function returns.

    edit(model, {"decoder.3.attention.heads": torch.zeros_like})  # takes the heads of block 3 out
    """
    with _installed(model, edits, "last"):
        yield


def tap_names(model: nn.Module) -> dict[str, str]:
    """Every tap of the model, by name, and what it is."""
    return {name: meaning for name, (_, meaning) in _all_taps(model).items()}


def _all_taps(model: nn.Module) -> dict[str, tuple[tuple[int, str], str]]:
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model that was compiled
    return {
        f"{path}.{tap}" if path else tap: ((id(part), tap), meaning)
        for path, part in model.named_modules()
        if isinstance(part, Part)
        for tap, meaning in part.taps.items()
    }


@contextmanager
def _installed(model: nn.Module, patterns: Mapping[str, Edit | None], keep: str) -> Iterator[_Watcher]:
    global _watcher
    if not patterns:
        raise InputError('nothing to watch: give at least one tap, such as "decoder.*.attention.pattern"')
    taps = _all_taps(model)
    reads: dict[tuple[int, str], str] = {}
    edits: dict[tuple[int, str], Edit] = {}
    for pattern, replace in patterns.items():
        matching = [name for name in taps if fnmatchcase(name, pattern)]
        if not matching:
            raise InputError(f"no tap matches {pattern!r}: {_nearest(pattern, taps) or 'this model has no taps'}")
        for name in matching:
            key, _ = taps[name]
            if replace is None:
                reads[key] = name
            else:
                edits[key] = replace
    outer, _watcher = _watcher, _Watcher(reads, edits, _watcher, keep)
    try:
        yield _watcher
    finally:
        _watcher = outer


def _nearest(pattern: str, names: Mapping[str, Any]) -> str:
    near = get_close_matches(pattern, list(names), n=3, cutoff=0.3) or list(names)[:3]
    return f"did you mean {', '.join(near)}? tap_names(model) lists all {len(names)}" if near else ""
