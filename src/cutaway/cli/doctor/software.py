"""Python, torch and the other packages, against what our pyproject.toml asks for."""

import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from cutaway.cli.doctor.row import Row, first_line


def python() -> Iterator[Row]:
    wanted = metadata.metadata("cutaway")["Requires-Python"]
    low, high = sorted(_numbers(bound) for bound in wanted.split(","))
    good = low <= sys.version_info[:2] < high
    yield Row(
        "Python",
        "ok" if good else "missing",
        f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "" if good else f"make a new environment with Python {wanted}",
        essential=True,
    )


def torch_() -> Iterator[Row]:
    wanted = next(spec for name, spec, extra in _requirements() if name == "torch" and not extra)
    fix = f"pip install 'torch{wanted}'"
    try:
        import torch
    except Exception as error:  # a broken build fails in many ways
        yield Row("torch", "missing", first_line(error), fix, essential=True)
        return
    version = str(torch.__version__)
    good = _numbers(version) >= _numbers(wanted)
    kind = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "CPU build"
    yield Row(
        "torch",
        "ok" if good else "missing",
        f"{version}, {kind}" + ("" if good else f"; Cutaway needs {wanted}"),
        "" if good else fix,
        essential=True,
        facts={"version": version},
    )


def libraries() -> Iterator[Row]:
    names = [name for name, _, extra in _requirements() if not extra and name != "torch"]
    yield _packages_row("libraries", names, "pip install cutaway", essential=True)


def extras() -> Iterator[Row]:
    for extra in dict.fromkeys(extra for _, _, extra in _requirements() if extra):
        names = [name for name, _, of in _requirements() if of == extra]
        yield _packages_row(f"extra {extra}", names, "make setup", essential=False)


def _packages_row(label: str, names: list[str], fix: str, essential: bool) -> Row:
    versions = {name: _version(name) for name in names}
    missing = [name for name, version in versions.items() if version is None]
    present = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    found = "; ".join(filter(None, [present, f"no {', '.join(missing)}" if missing else ""]))
    return Row(label, "missing" if missing else "ok", found, fix if missing else "", essential, versions)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> list[tuple[str, str, str]]:
    """(package, versions, extra) for every line of our pyproject.toml, as installed."""
    found = []
    for line in metadata.requires("cutaway") or []:
        requirement, _, marker = line.partition(";")
        name, spec = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement.strip()).groups()  # type: ignore[union-attr]
        extra = re.search(r"extra == ['\"]([\w-]+)", marker)
        found.append((name, spec, extra[1] if extra else ""))
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """`>=2.11` and `2.11.0+cpu` → (2, 11)."""
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])
