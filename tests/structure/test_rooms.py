"""CONTRIBUTING.md says who may import whom; these tests read it and every import in src/cutaway."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cutaway

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "cutaway"
FRONT_DOOR = "cutaway"  # `from cutaway import load`: only for those who may import all


def read_table(text: str) -> dict[str, set[str]]:
    """Room → rooms that it may import, from the table of CONTRIBUTING.md."""
    _, _, table = text.partition("| room | may import, of ours |\n")
    rows = []
    for line in table.splitlines()[1:]:
        if not line.startswith("|"):
            break
        rows.append([re.sub(r" *\(.*?\)|\\", "", cell).strip() for cell in line.strip("|").split("|")])
    leaves = {room for left, right in rows for room in right.split(", ") if left == "every room"}
    rows = [(left.split(", "), right) for left, right in rows if left != "every room"]
    rooms = {room for left, _ in rows for room in left}

    def allowed(room: str, right: str) -> set[str]:
        if right == "all":
            return rooms | {FRONT_DOOR}
        if right.startswith("all but "):
            return rooms - set(right.removeprefix("all but ").split(" and "))
        names = set() if right in ("nothing", "nothing else") else set(right.split(", "))
        assert names <= rooms, f"{names - rooms} stands right in the table, but has no row"
        return names if room in leaves else names | leaves

    return {room: allowed(room, right) for left, right in rows for room in left}


def room_of(path: Path, src: Path) -> str:
    """`tokens/bpe.py` → tokens, `errors.py` → errors, `__init__.py` → the front door."""
    first = path.relative_to(src).parts[0].removesuffix(".py")
    return FRONT_DOOR if first == "__init__" else first


def imports(path: Path, src: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a file imports, also in functions and relatively."""
    package = ("cutaway", *path.relative_to(src).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                yield from ((node.lineno, ".".join(filter(None, [*base, module, alias.name]))) for alias in names)
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(name)), *_]
            ):
                if called in ("import_module", "__import__"):
                    yield node.lineno, name


def violations(src: Path, table: dict[str, set[str]]) -> list[str]:
    """Every import that the table forbids, as `file:line: what`."""
    found = []
    for path in sorted(src.rglob("*.py")):
        room = room_of(path, src)
        if room == FRONT_DOOR:
            continue  # it names what all rooms offer
        where = path.relative_to(src)
        if room not in table:
            found.append(f"{where}: the room {room} is not in the table of CONTRIBUTING.md")
            continue
        for line, name in imports(path, src):
            top, _, rest = name.partition(".")
            if top != "cutaway" or rest == "__version__":
                continue
            target = rest.split(".")[0]
            target = target if target in table else FRONT_DOOR
            if target != room and target not in table[room]:
                found.append(f"{where}:{line}: {room} may not import {name}")
    return found


def plant(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


TABLE = read_table((ROOT / "CONTRIBUTING.md").read_text())


def test_rooms_import_only_what_the_table_allows():
    assert violations(SRC, TABLE) == []


def test_the_table_allows_nothing_that_nobody_imports():
    used: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        for _, name in imports(path, SRC):
            used.setdefault(room_of(path, SRC), set()).add(name.removeprefix("cutaway.").split(".")[0])
    leaves = TABLE["objectives"] - {"model"}
    unused = {room: rooms - used.get(room, set()) - leaves for room, rooms in TABLE.items()}
    not_said = {"cli", "__main__", *leaves}  # all
    assert {room: rooms for room, rooms in unused.items() if rooms and room not in not_said} == {}


def test_families_that_are_imported_by_name_come_from_rooms_that_the_table_allows():
    from cutaway.families import FAMILIES

    rooms = {file.partition(".")[0] for file, _, _ in FAMILIES.values()}
    assert rooms <= TABLE["families"] | {"families"}


def test_tokens_imports_no_torch():
    tokens = [path for path in SRC.rglob("*.py") if room_of(path, SRC) == "tokens"]
    found = [f"{p.name}:{line}" for p in tokens for line, name in imports(p, SRC) if name.split(".")[0] == "torch"]
    assert found == []


def test_peers_stay_in_tests_benchmarks_exports_and_the_certificate():
    peers = {"transformers", "ctranslate2", "transformer_lens"}
    found = [
        f"{p.relative_to(SRC)}:{line}"
        for p in SRC.rglob("*.py")
        for line, n in imports(p, SRC)
        if n.split(".")[0] in peers and room_of(p, SRC) != "certificate" and p.name != "to_ctranslate2.py"
    ]
    assert found == []


def test_every_import_of_ours_is_there():
    """Also where nothing runs it here: tests of a GPU, benchmarks, recipes."""
    missing = []
    for path in (p for folder in ("src", "tests", "bench", "recipes", "tools") for p in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cutaway" and not node.level:
                names = names_in(node.module)
                where = f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}"
                missing += [f"{where}.{alias.name}" for alias in node.names if alias.name not in names]
    assert missing == []


def names_in(module: str) -> set[str]:
    """The names that can be imported from a module of ours, without running it."""
    folder = ROOT / "src" / Path(*module.split("."))
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    names = {path.stem for path in folder.iterdir()} if folder.is_dir() else set()
    for node in ast.walk(ast.parse(file.read_text())) if file.exists() else ():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=some) | ast.ImportFrom(names=some):
                names |= {alias.asname or alias.name for alias in some}
    return names | set(cutaway.__all__) if module == "cutaway" else names


def test_import_cutaway_is_lazy():
    code = "import sys, cutaway; dir(cutaway); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_public_names_resolve():
    for name in cutaway.__all__:
        assert getattr(cutaway, name)


def the_map() -> dict[str, str]:
    """Each room's paragraph of the map in CONTRIBUTING."""
    _, _, map_ = (ROOT / "CONTRIBUTING.md").read_text().partition("in the order of the lecture")
    return dict(re.findall(r"^\*\*(\w+)\*\*:? (.*?)(?=\n\n)", map_.partition("`tests/` mirrors")[0], re.M | re.S))


def test_the_docstring_and_the_map_list_the_rooms_in_one_order():
    docstring = re.findall(r"^(\w+)  +\S", cutaway.__doc__, re.M)
    assert docstring == list(the_map())
    assert set(docstring) == {room for room in TABLE if not (SRC / f"{room}.py").exists()}


@pytest.mark.parametrize("room", the_map())
def test_what_the_map_names_is_there(room):
    """Folders in bold, files in backticks: a newcomer guesses by these names."""
    for folder in re.findall(r"\*\*(\w+)\*\*", the_map()[room]):
        assert (SRC / room / folder).is_dir(), folder
    files = {path.stem for path in (SRC / room).rglob("*.py")}
    for file in re.findall(r"`(\w+)`", the_map()[room]):
        assert file in files, file


# --- the checker itself -----------------------------------------------------------------------------------------------


def test_the_table_is_read():
    assert TABLE["errors"] == set()
    leaves = {"errors", "arguments", "files", "folders", "lazy", "npy", "parquet", "unpacked"}
    assert TABLE["model"] == leaves
    assert TABLE["decoding"] == {"model", "tokens", "data"} | leaves
    assert "decoding" in TABLE["training"]
    assert TABLE["objectives"] == TABLE["families"] == {"model"} | leaves
    assert TABLE["cli"] == TABLE.keys() | {FRONT_DOOR}


def test_planted_violations_are_found(tmp_path):
    src = plant(
        tmp_path,
        {
            "__init__.py": "from cutaway.model import tap\n",
            "errors.py": "",
            "model/ok.py": "import torch\nfrom cutaway.errors import InputError\nfrom . import tap\n",
            "model/absolute.py": "import torch\n\nimport cutaway.families.gpt\n",
            "model/deep.py": "def f():\n    from cutaway.decoding.search import beam\n",
            "model/relative.py": "from ..training import loop\n",
            "model/root.py": "from .. import tokens\nfrom cutaway import load, __version__\n",
            "model/sub/deeper.py": "from ...inside.residual import lens\nfrom ..masks import causal\n",
            "model/dynamic.py": "from importlib import import_module\nimport_module('cutaway.cli')\n",
            "errands/__init__.py": "",
            "cli/ok.py": "from cutaway import load\nfrom cutaway.serving import app\n",
            "before/bad.py": "from cutaway.serving import app\n",
        },
    )
    assert violations(src, TABLE) == [
        "before/bad.py:1: before may not import cutaway.serving.app",
        "errands/__init__.py: the room errands is not in the table of CONTRIBUTING.md",
        "model/absolute.py:3: model may not import cutaway.families.gpt",
        "model/deep.py:2: model may not import cutaway.decoding.search.beam",
        "model/dynamic.py:2: model may not import cutaway.cli",
        "model/relative.py:1: model may not import cutaway.training.loop",
        "model/root.py:1: model may not import cutaway.tokens",
        "model/root.py:2: model may not import cutaway.load",
        "model/sub/deeper.py:1: model may not import cutaway.inside.residual.lens",
    ]
