"""Reads the config of somebody else's model: every value has the expected type, and no key is silently ignored."""

from collections.abc import Collection, Mapping
from typing import Any

from cutaway.errors import ConfigError


class ConfigReader:
    """A config, read key by key. A key that nobody read and that is not `harmless` is an error in `finish`."""

    def __init__(self, values: Mapping[str, Any], where: str, harmless: Collection[str] = ()) -> None:
        self.values, self.where, self.harmless = dict(values), where, harmless
        self.seen: set[str] = set()

    def get(self, name: str, default: Any = None, *, kind: type | None = None, null: bool = False) -> Any:
        """The value of a key, else its default, of whose type it must be (or of type `kind`); None only with `null`."""
        self.seen.add(name)
        value = self.values.get(name, default)
        if value is None and (default is None or null):
            return None
        kind = type(default) if kind is None and default is not None else kind
        if kind is float and type(value) is int and abs(value) < 2**53:
            return float(value)
        if kind is not None and type(value) is not kind:
            raise ConfigError(f"{self.where}: {name}={value!r} is not of type {kind.__name__}")
        return value

    def require(self, name: str, kind: type) -> Any:
        """The value of a key that must be there."""
        if (value := self.get(name, kind=kind)) is None:
            raise ConfigError(f"{name!r} is missing in {self.where}")
        return value

    def expect(self, name: str, *supported: Any) -> None:
        """Refuses any value of this key but the supported ones; the first is the default."""
        self.seen.add(name)
        if (value := self.values.get(name, supported[0])) not in supported:
            raise ConfigError(f"{self.where}: {name}={value!r} is not supported; only {supported[0]!r} is")

    def ignore(self, *names: str) -> None:
        """These keys change no result."""
        self.seen.update(names)

    def finish(self) -> None:
        """Refuses a config with a key that was not read: it may change the results."""
        for name in self.values.keys() - self.seen - set(self.harmless):
            if name in ("auto_map", "custom_pipelines"):
                raise ConfigError(f"{self.where}: {name!r} asks to run code from the folder, which Cutaway never does")
            raise ConfigError(f"{self.where}: unknown key {name!r}: it may change the numbers, so it is not ignored")
