"""The certificate as a file next to the weights, `certificate.json`. Reading it is strict."""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cutaway.certificate.entry import Entry
from cutaway.checkpoints.tensors import INDEX, SINGLE
from cutaway.errors import CheckpointError
from cutaway.files import MEGABYTE, plain_child, read_json, write_json
from cutaway.folders import finish_replacing
from cutaway.tokens.tokenizer import FILE

SCHEMA = 3
NAME = "certificate.json"
KINDS: dict[str, type] = {
    "family": str,
    "task": str,
    "parameters": int,
    "precision": str,
    "files": dict,
    "versions": dict,
    "machine": dict,
    "date": str,
    "seed": int,
    "quick": bool,
    "length": int,
    "max_len": int,
    "entries": list,
}
NULLABLE = ("length", "max_len")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What was measured, for which files, with which versions, where and when."""

    family: str
    task: str
    parameters: int
    precision: str  # of the measured model: "fp32", or "int8" for weights in 8 bits
    files: dict[str, str]  # name → SHA-256
    versions: dict[str, str]
    machine: dict[str, str]
    date: str
    seed: int
    quick: bool
    length: int | None  # of the longest row in tokens; None for images
    max_len: int | None  # of the model; None if it has no limit
    entries: list[Entry]

    @property
    def passed(self) -> bool:
        """No law failed or stopped with an error; some may not have been measured."""
        return all(entry.verdict not in ("failed", "error") for entry in self.entries)

    def entry(self, law: str) -> Entry:
        return next(entry for entry in self.entries if entry.law == law)

    def to_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"schema": SCHEMA, **values, "entries": [entry.to_dict() for entry in self.entries]}

    def write(self, path: Path | str) -> None:
        write_json(Path(path), self.to_dict())

    def changed(self, model: Path | str) -> list[str]:
        """The files that have changed since the certificate was written; if there are any, it is stale."""
        now = fingerprint(Path(model))
        return sorted(name for name in now.keys() | self.files.keys() if now.get(name) != self.files.get(name))


def certificate_path(model: Path | str) -> Path:
    """Where a model's certificate is: in its folder, or next to its file, with the file's name before its own."""
    model = Path(model)
    return model / NAME if model.is_dir() else model.with_name(f"{model.name}.{NAME}")


def read_certificate(path: Path | str) -> Certificate:
    """Reads a certificate. Refuses other versions, unknown keys and values of the wrong type."""
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: `cutaway verify` writes it")
    values = read_json(path)
    if values.pop("schema", None) != SCHEMA:
        raise CheckpointError(
            f"{path} is not a certificate of version {SCHEMA}: measure it again with `cutaway verify`"
        )
    if values.keys() != KINDS.keys():
        wrong = sorted(values.keys() ^ KINDS.keys())
        raise CheckpointError(f"{path}: {wrong[0]!r} is missing, or is not a key of a certificate")
    for name, kind in KINDS.items():
        value = values[name]
        right = type(value) is kind or (value is None and name in NULLABLE)
        if right and kind is dict:
            right = all(isinstance(text, str) for text in value.values())
        if not right:
            raise CheckpointError(f"{path}: {name}={value!r} cannot be in a certificate")
    return Certificate(**values | {"entries": [Entry.from_dict(entry, str(path)) for entry in values["entries"]]})


def fingerprint(model: Path) -> dict[str, str]:
    """The SHA-256 of every file that determines the results of a model: config, weights, tokenizer."""
    finish_replacing(model)
    if not model.is_dir():
        return {model.name: _sha256(model)}
    names = ["config.json"]
    if (model / SINGLE).exists():
        names.append(SINGLE)
    elif (model / INDEX).exists():
        shards = read_json(model / INDEX).get("weight_map")
        names += [INDEX, *sorted({str(name) for name in (shards.values() if isinstance(shards, dict) else ())})]
    names += [FILE] * (model / FILE).exists()
    return {name: _sha256(plain_child(model, name)) for name in names}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(MEGABYTE):
                digest.update(block)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
