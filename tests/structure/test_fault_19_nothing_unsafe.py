"""Fault 19: no path falls back to unsafe loading; nothing in src/ runs code that it was handed as data."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "cutaway"

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jinja2", "code"}
CALLS = {
    "eval", "exec", "compile", "builtins.eval", "builtins.exec", "builtins.compile",
    "torch.load", "torch.serialization.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter",
    "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip
# The process that renders chat templates, in the sandbox and within bounds: tests/serving/test_chat_template.py
SANDBOX = "serving/template_worker.py"
KEYWORDS = {"shell", "allow_pickle", "trust_remote_code"}


def unsafe(text: str) -> Iterator[tuple[int, str]]:
    """(line, what) of every unsafe import, call or keyword in a source text, whatever name it was imported under."""
    tree = ast.parse(text)
    real: dict[str, str] = {}  # name in this file → its full name
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
                real |= {alias.asname: alias.name for alias in names if alias.asname}
            case ast.ImportFrom(module=str(module), names=names):
                imported = [module, *(f"{module}.{alias.name}" for alias in names)]
                real |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
            case _:
                continue
        for name in imported:
            if any(name == bad or name.startswith(f"{bad}.") for bad in MODULES):
                yield node.lineno, f"import {name}"
                break
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            head, _, rest = ast.unparse(node).partition(".")
            name = real.get(head, head) + (f".{rest}" if rest else "")
            if name in CALLS:
                yield node.lineno, name
        if isinstance(node, ast.keyword) and node.arg in KEYWORDS and ast.unparse(node.value) != "False":
            yield node.value.lineno, f"{node.arg}={ast.unparse(node.value)}"


def test_fault_19_nothing_unsafe_in_src():
    found = [
        f"{path.relative_to(SRC)}:{line}: {what}"
        for path in sorted(SRC.rglob("*.py"))
        for line, what in unsafe(path.read_text())
        if (path.relative_to(SRC).as_posix(), what.partition(".")[0]) != (SANDBOX, "import jinja2")
    ]
    assert found == []
    assert "jinja2.Environment(" not in (SRC / SANDBOX).read_text(), "one without a sandbox"


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "exec('1')",
        "f = eval",
        "import builtins\nbuiltins.exec('1')",
        "import pickle",
        "def f():\n    from pickle import loads",
        "import marshal as m",
        "import torch\ntorch.load('x', weights_only=True)",
        "import torch as t\nt.load('x')",
        "from torch import load as read\nread('x')",
        "import torch\ntorch.hub.load('x')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
        "import os\nos.system('ls')",
        "import yaml\nyaml.load('x')",
        "from jinja2 import Template",
        "import jinja2.sandbox",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
    ],
)
def test_fault_19_a_planted_danger_is_found(text):
    assert [line for line, _ in unsafe(text)] == [len(text.splitlines())]


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "import torch\ntorch.compile(f)",
        "import re\nre.compile('x')",
        "subprocess.run(['ls'], shell=False)",
        "import json\njson.load(file)",
    ],
)
def test_fault_19_the_harmless_is_left_alone(text):
    assert list(unsafe(text)) == []
