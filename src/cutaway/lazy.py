"""Packages whose public names are imported when they are first used, so that importing the package costs nothing.

    if TYPE_CHECKING:
        from cutaway.pictures.heat_map import HeatMap as HeatMap

    __getattr__, __dir__ = lazy_names(__name__)

The list that type checkers and editors read is the only one: the names and their homes are taken from there.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, for the names that it imports under `if TYPE_CHECKING:`."""

    @cache
    def homes() -> dict[str, str]:
        import ast  # here, since it would be a tenth of `import cutaway`

        source: str = vars(sys.modules[package])["__loader__"].get_source(package)
        blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(homes())
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes()))}")
        value = getattr(import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes()})

    return get, names
