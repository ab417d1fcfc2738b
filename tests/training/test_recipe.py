"""Recipes: strict when they are read, whole when they are written, and compared value by value."""

import dataclasses
import functools
import json
import tomllib
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from helpers.limits import limits
from helpers.toy_recipes import toy, values
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import ConfigError
from cutaway.training import recipe_file
from cutaway.training.recipe import Recipe
from cutaway.training.recipe_checks import SHARES
from cutaway.training.recipe_file import read_recipe, recipe_from, to_toml
from cutaway.training.resume import differences
from cutaway.training.tasks import TASKS

HINTS = get_type_hints(Recipe)
TABLES = [name for name, hint in HINTS.items() if dataclasses.is_dataclass(hint)]
SMALL: dict[str, Any] = {"model": {"size": "gpt2"}}

# --- any recipe at all ------------------------------------------------------------------------------------------------

NUMBERS = st.floats(0, allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
CHOICES = {
    "objective.agree": [0.0],  # for translate alone
    "train.precision": ["fp32", "bf16"],
    "train.compile": ["no", "default"],
    "data.split": ["file", "line", "form_feed", "blank_line"],
    "data.format": ["auto", "text", "table", "parallel", "images"],
    "objective.kind": [kind for kind in TASKS if kind != "images"],
    "model.size": ["gpt2", "bert-tiny"],
    "train.average": [0],  # or train.ema would have to be
    "train.tokens": [10**9],  # at least a window
    **{name: [0.0, 0.1, 1.0] for name in SHARES},
    "tokenizer.dropout": [0.0],  # or the objective would have to be translate
}


def value_of(name: str, kind: Any) -> st.SearchStrategy[Any]:
    """Something that this field may be."""
    if name in CHOICES:
        return st.sampled_from(CHOICES[name])
    if name == "model.changes":
        return st.dictionaries(
            st.sampled_from(["d_model", "dropout", "wiring"]), st.integers(-(10**9), 10**9) | NUMBERS | TEXT
        )
    if name == "objective.changes":
        return st.just({})
    if name == "model.start":
        return st.none()
    plain = {str: TEXT, int: st.integers(1, 10**9), float: NUMBERS, bool: st.booleans(), type(None): st.none()}
    options = [kind] if get_origin(kind) is None or get_origin(kind) is tuple else list(get_args(kind))
    return st.one_of(
        st.lists(value_of("", get_args(option)[0]), max_size=3) if get_origin(option) is tuple else plain[option]
        for option in options
    )


def table(kind: Any, prefix: str = "") -> st.SearchStrategy[dict[str, Any]]:
    """Values for all keys of a table; plain ones, because the recipe's own types are checked at random places."""
    parts = {}
    for name, hint in get_type_hints(kind).items():
        full = f"{prefix}{name}"
        parts[name] = table(hint, f"{full}.") if dataclasses.is_dataclass(hint) else value_of(full, hint)
    return st.fixed_dictionaries(parts)


@given(table(Recipe))
def test_what_is_written_reads_back_as_the_same_recipe(values: dict[str, Any]) -> None:
    recipe = recipe_from(values)
    again = recipe_from(tomllib.loads(to_toml(recipe)))
    assert again == recipe
    assert differences(recipe.to_dict(), again.to_dict()) == []


def test_the_values_of_a_file_arrive(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[model]\nsize = "gpt2"\nd_model = 64\n[train]\nema = 1\n[data]\ntrain = "one.txt"\n')
    recipe = read_recipe(path)
    assert (recipe.model.changes, recipe.train.ema, recipe.data.train) == ({"d_model": 64}, 1.0, ("one.txt",))


# --- strict -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in TABLES if name != "model"])
def test_an_unknown_key_is_refused_with_its_table_and_what_is_known(name: str) -> None:
    known = [field.name for field in dataclasses.fields(get_type_hints(Recipe)[name])]
    with pytest.raises(ConfigError) as caught:
        recipe_from({**SMALL, name: {"stpes": 3}}, "my.toml")
    assert str(caught.value).startswith(f"my.toml: unknown key 'stpes' in [{name}]; known: ")
    assert all(key in str(caught.value) for key in known)


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"tokens": 100, "rows": 4}},
        {"train": {"tokens": 100}, "data": {"split": "line"}},
        {"train": {"tokens": 100}, "data": {"format": "table"}},
        {"train": {"tokens": 100}, "objective": {"kind": "translate"}},
        {"train": {"tokens": 256}},
    ],
)
def test_what_has_no_windows_may_have_fewer_tokens_than_one(changes: dict[str, Any]) -> None:
    assert recipe_from({**SMALL, **changes}).train.tokens == changes["train"]["tokens"]


def test_what_was_probably_meant_is_asked() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'stpes' in \[train\]; known: .*; did you mean 'steps'\?$"):
        recipe_from({**SMALL, "train": {"stpes": 3}})
    with pytest.raises(ConfigError, match=r"unknown key 'smothing' in \[objective\]; .*; did you mean 'smoothing'\?$"):
        recipe_from({**SMALL, "objective": {"smothing": 3}})
    with pytest.raises(ConfigError, match=r"unknown key 'xyz' in \[train\]; known: [^;]*$"):
        recipe_from({**SMALL, "train": {"xyz": 3}})


def test_an_unknown_key_at_the_top_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'modell' in the top; known: about, .*tokenizer, train"):
        recipe_from({"modell": {"size": "gpt2"}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train": {"steps": "10"}}, r"train.steps='10' is not int"),
        ({"train": {"steps": 1.5}}, r"train.steps=1.5 is not int"),
        ({"train": {"steps": True}}, r"train.steps=True is not int"),
        ({"train": {"checkpointing": 1}}, r"train.checkpointing=1 is not bool"),
        ({"train": {"steps": 0}}, r"train.steps=0 must be at least 1"),
        ({"train": {"rows": 0}}, r"train.rows=0 must be at least 1"),
        ({"train": {"threads": 0}}, r"train.threads=0 must be at least 1"),
        ({"train": {"average": -1}}, r"train.average=-1 must be at least 0"),
        ({"evaluate": {"batches": -2}}, r"evaluate.batches=-2 must be at least 0"),
        ({"evaluate": {"samples": -1}}, r"evaluate.samples=-1 must be at least 0"),
        ({"optimizer": {"rate": -1}}, r"optimizer.rate=-1.0 must be at least 0"),
        ({"schedule": {"warmup": -5}}, r"schedule.warmup=-5 must be at least 0"),
        ({"train": {"ema": 1.5}}, r"train.ema=1.5 is a share, at most 1"),
        ({"data": {"wrap": 3}}, r"data.wrap=3.0 is a share, at most 1"),
        (
            {"train": {"tokens": 100}},
            r"train.tokens=100 is less than one window of data.seq_len=256: raise",
        ),
        (
            {"train": {"tokens": 100}, "objective": {"kind": "pretrain"}, "data": {"split": "line"}},
            r"train.tokens=100 is less than one window",
        ),
        ({"objective": {"smoothing": float("nan")}}, r"objective.smoothing=nan is not a finite number"),
        ({"optimizer": {"clip": float("inf")}}, r"optimizer.clip=inf is not a finite number"),
        ({"optimizer": {"betas": [0.9, float("-inf")]}}, r"optimizer.betas\[1\]=-inf is not a finite number"),
        ({"model": {"size": "gpt2", "dropout": float("nan")}}, r"model.dropout=nan is not a finite number"),
        ({"model": {"size": "gpt2", "changes": {"d_ff": 1 << 63}}}, r"model.changes.d_ff has more than 64"),
        ({"train": {"steps": 10**5000}}, r"train.steps has more than 64 bits"),
        ({"optimizer": {"layer_decay": 1e200}}, r"optimizer.layer_decay=1e\+200 is a share, at most 1"),
        ({"name": "half \udc80"}, r"name='half \\udc80' is not UTF-8: rename the file"),
        ({"train": {3: 4}}, r"the key 3 in \[train\] is not a string"),
        ({"data": {"train": functools.reduce(lambda inner, _: [inner], range(9), "a")}}, r"is nested too deeply"),
        ({"objective": {"smoothing": 1.5}}, r"objective.smoothing=1.5 is a share, at most 1"),
        (
            {"tokenizer": {"dropout": 0.1}},
            r"tokenizer.dropout=0.1 is only for translate, not for next_token",
        ),
        (
            {"tokenizer": {"dropout": 0.1, "kind": "unigram"}, "objective": {"kind": "translate"}},
            r"tokenizer.dropout=0.1 needs a BPE tokenizer; unigram has no merges",
        ),
        ({"tokenizer": {"dropout": 1.0}, "objective": {"kind": "translate"}}, r"dropout=1 leaves no merge"),
        ({"tokenizer": {"dropout": 1.5}}, r"tokenizer.dropout=1.5 is a share, at most 1"),
        ({"tokenizer": {"cuts": 0}}, r"tokenizer.cuts=0 must be at least 1"),
        ({"train": 3}, r"train is a table: write it as \[train\]"),
        ({"train": {"precision": "fp16"}}, r"train.precision='fp16' is not one of fp32, bf16"),
        ({"objective": {"kind": "guess"}}, r"objective.kind='guess' is not one of next_token, masked"),
        ({"objective": {"smothing": 0.1}}, r"unknown key 'smothing' in \[objective\]; known: kind, smoothing"),
        ({"data": {"split": "page"}}, r"data.split='page' is not one of file, line"),
        ({"data": {"train": [1]}}, r"data.train=1 is not str"),
        ({"optimizer": {"betas": ["a", "b"]}}, r"optimizer.betas='a' is not float"),
        ({"name": 3}, r"name=3 is not str"),
        ({"model": {"size": 3}}, r"model.size=3 is not str"),
        ({"model": {"size": "gpt2", "changes": 3}}, r"model.changes=3 is not"),
        ({"model": {"size": "gpt2", "d_ff": 8, "changes": {"d_ff": 9}}}, r"model.d_ff and model.changes.d_ff are the"),
        ({"model": {}}, r"\[model\] needs a `size` .* or a `start`"),
        (
            {"train": {"average": 5, "ema": 0.999}},
            r"train.average=5 and train.ema=0.999 are two ways to average the weights: set one of them to 0",
        ),
        ({"model": {"size": "gpt2", "start": "x"}}, r"\[model\] needs a `size` .* or a `start`"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        recipe_from({**SMALL, **changes})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".".join("a" * 100_000) + " = 1", "has more than 8 parts"),
        ("[" + " . ".join("a" * 100_000) + "]", "has more than 8 parts"),
        ("x = {" + ".".join("a" * 100_000) + " = 1}", "has more than 8 parts"),
        ('a."b".' + ".".join("c" * 100_000) + " = 1", "has more than 8 parts"),
        ("[" + '."b"' * 50_000 + "]", "has more than 8 parts"),
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("x = " + "{a=" * 100_000, "nested too deeply"),
        ("x = " + "9" * 200_000, "is not valid TOML: Exceeds the limit"),
        ("a" * 200_000, "is not valid TOML"),
        ("x = " + '"""' * 66_001, "is not valid TOML"),
        ("x = 'a" * 40_000, "is not valid TOML"),
        ("#" * 5_000_000, "at most 4,194,304 are read"),
        ("x = 1e999", "x=inf is not a finite number"),
        ("x = '\x00'", "is not valid TOML"),
        ("x = 1979-05-27", "unknown key 'x'"),
        ("name = 1979-05-27", "is not str"),
        ("[model]\nsize = 1979-05-27T07:32:00Z", "is not str"),
    ],
)
def test_a_hostile_file_is_refused_in_a_moment(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with limits(seconds=30), pytest.raises(ConfigError, match=said):
        read_recipe(path)


@pytest.mark.parametrize("text", ['"' + r"\"" * 20, '"' + r"\"x" * 20, '"\\'])
def test_a_text_without_its_end_is_looked_at_once(text: str) -> None:
    """Else a quote behind each backslash begins another: a recipe of a megabyte took hours."""
    assert recipe_file._TEXT.findall(f"name = {text}") in ([text], [text[:-1]])
    with pytest.raises(ConfigError, match="is not valid TOML"):
        recipe_file.parse_toml(f"name = {text}", "a recipe")


def test_dots_in_texts_and_remarks_are_no_parts_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    dots = "a.b.c.d.e.f.g.h.i.j.k"
    path.write_text(
        f'name = "{dots} \\" {dots}"\r\nlicence = \'{dots}\'\nabout = """\n{dots}\n"""  # {dots}\nmodel.size = "gpt2"\n'
    )
    recipe = read_recipe(path)
    assert (recipe.name, recipe.licence, recipe.about) == (f'{dots} " {dots}', dots, f"{dots}\n")


AT_LEAST_ONE = """
    train.steps train.tokens train.rows train.accumulate train.workers train.threads data.seq_len data.image_size
    evaluate.every evaluate.log checkpoint.every checkpoint.keep tokenizer.cuts
""".split()
AT_MOST_ONE = """
    train.ema data.valid_share data.wrap objective.smoothing objective.mask_share schedule.final schedule.decay
    tokenizer.dropout optimizer.layer_decay
""".split()
ANY_NUMBER = ["tokenizer.vocab_size", "objective.auxiliary", "train.lora_alpha"]
NUMBERS_OF_A_RECIPE = [
    (f"{table}.{name}", float if "float" in str(hint) else int)
    for table in TABLES
    for name, hint in get_type_hints(HINTS[table]).items()
    if hint in (int, float, int | None, float | None)
]


@pytest.mark.parametrize(("name", "kind"), NUMBERS_OF_A_RECIPE)
def test_every_number_has_its_bounds(name: str, kind: type) -> None:
    """Below 0 stands no number that a run depends on; some must be 1 or more, and shares at most that."""
    table, key = name.split(".")

    def refusal(value: float) -> str:
        recipe = {**SMALL, **({"data": {"seq_len": 1}} if name == "train.tokens" else {})}
        recipe[table] = {**recipe.get(table, {}), key: kind(value)}
        try:
            recipe_from(recipe)
        except ConfigError as error:
            return str(error)
        return ""

    if name in ANY_NUMBER:
        return
    least = 1 if name in AT_LEAST_ONE else 0
    assert f"{name}={kind(least - 1)} must be at least {least}" in refusal(least - 1)
    assert "must be at least" not in refusal(least)
    assert (f"{name}=2.0 is a share, at most 1" in refusal(2)) == (name in AT_MOST_ONE)
    assert "is a share" not in refusal(1)


DEFAULTS = """
[tokenizer]
lowercase = false
dropout = 0.0
cuts = 16

[data]
root = "."
format = "auto"
train = []
valid = []
valid_share = 0.0
valid_last = 0
split = "file"
header = []
skip_lines = 0
further_fields = false
source = "source"
target = "target"
text = "text"
label = "label"
labels = []
directions = []
seq_len = 256
wrap = 0.0
apart = true
borders = true

[objective]
kind = "next_token"
smoothing = 0.0
agree = 0.0
auxiliary = 0.0
whole_words = true
mask_share = 0.15

[train]
steps = 1000
tokens = 8192
accumulate = 1
precision = "fp32"
compile = "no"
capture = true
checkpointing = false
device = "auto"
workers = 1
ema = 0.0
average = 0
freeze = []
lora_rank = 0
lora_alpha = 16.0
lora_parts = ["*attention*", "*feed_forward*"]
spike = 0.0

[optimizer]
kind = "adamw"
rate = 0.001
betas = []
clip = 1.0
matrix_rate = 0.02
momentum = 0.95
layer_decay = 1.0

[schedule]
kind = "cosine"
warmup = 0
final = 0.0
decay = 0.2

[evaluate]
every = 250
batches = 0
metric = "loss"
keep_best = true
patience = 0
samples = 3
prompt = "\\n"
log = 10

[checkpoint]
every = 1000
keep = 2
"""


def test_what_a_recipe_does_not_say_is_as_documented() -> None:
    """A recipe that says little must train the same model years later."""
    resolved = to_toml(recipe_from(SMALL))
    assert resolved.startswith('name = "model"\nabout = ""\nlicence = ""\nseed = 0\n\n[model]\nsize = "gpt2"\n')
    assert resolved.partition('size = "gpt2"\n')[2] == DEFAULTS


# --- --set ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("train.steps=7", lambda r: r.train.steps == 7),
        ("train.ema = 0.9", lambda r: r.train.ema == 0.9),
        ("train.ema=1", lambda r: r.train.ema == 1.0),
        ("model.d_model=32", lambda r: r.model.changes["d_model"] == 32),
        ("name=a=b", lambda r: r.name == "a=b"),
        ("name=two words", lambda r: r.name == "two words"),
        ('name="7"', lambda r: r.name == "7"),
        ("train.checkpointing=true", lambda r: r.train.checkpointing is True),
        ('data.train=["a", "b"]', lambda r: r.data.train == ("a", "b")),
        ("data.train=a", lambda r: r.data.train == ("a",)),
        ("tokenizer.kind=char", lambda r: r.tokenizer.kind == "char"),  # a table that the file does not have
    ],
)
def test_a_value_can_be_set(change: str, found: Any, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[model]\nsize = "gpt2"\n')
    assert found(read_recipe(path, [change]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.steps", r"--set 'train.steps': write it as a.b=c"),
        ("=3", r"--set '=3': write it as a.b=c"),
        ("train.stpes=3", r"unknown key 'stpes' in \[train\]"),
        ("train.steps=many", r"train.steps='many' is not int"),
        ("model.size.a=3", r"'size' is not a table"),
        ("train.steps.a=3", r"train.steps=\{'a': 3\} is not int"),
    ],
)
def test_what_cannot_be_set_is_refused(change: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[model]\nsize = "gpt2"\n')
    with pytest.raises(ConfigError, match=said):
        read_recipe(path, [change])


def test_a_file_that_is_none_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is not a regular file: it is a folder"):
        read_recipe(tmp_path)
    said = {"bad.toml": (b"a = [", "valid TOML"), "latin.toml": (b'name = "\xe9"', "UTF-8: .* at byte 8")}
    for name, (data, what) in said.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=f"{name} is not {what}"):
            read_recipe(tmp_path / name)


# --- what differs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [f"{table}.{field.name}" for table in TABLES for field in dataclasses.fields(HINTS[table])]
    + ["seed", "name", "about", "licence"],
)
def test_whatever_changes_a_weight_is_a_difference(name: str) -> None:
    old = recipe_from(SMALL).to_dict()
    new = recipe_from(SMALL).to_dict()
    *tables, key = name.split(".")
    (new[tables[0]] if tables else new)[key] = "another"
    free = ["name", "about", "licence", "data.root", "train.workers", "evaluate.log", "evaluate.samples"]
    free += ["evaluate.prompt", "checkpoint.keep"]
    assert bool(differences(old, new)) == (name not in free)


def test_what_differs_is_named_and_what_may_differ_is_not(tmp_path: Path) -> None:
    old = toy("next_token", tmp_path).to_dict()
    assert differences(old, old) == []
    changes = {"train": {"steps": 9, "workers": 3}, "checkpoint": {"keep": 7}, "model": {"d_model": 32}}
    other = values("next_token", tmp_path, **changes)
    new = recipe_from({**other, "name": "another", "seed": 2}).to_dict()
    assert differences(old, new) == ["model.changes.d_model: 16 → 32", "seed: 1 → 2", "train.steps: 4 → 9"]
    del new["model"]["changes"]["d_ff"]
    assert differences(old, new)[0] == "model.changes.d_ff: 32 → null"


# --- every key has its borders ----------------------------------------------------------------------------------------

AT_LEAST_1 = ["train.steps", "train.tokens", "train.rows", "train.accumulate", "train.workers", "train.threads",
              "data.seq_len", "data.image_size", "evaluate.every", "evaluate.log", "checkpoint.every",
              "checkpoint.keep", "tokenizer.cuts"]  # fmt: skip
AT_LEAST_0 = ["train.average", "train.lora_rank", "train.spike", "data.valid_last", "data.skip_lines",
              "optimizer.rate", "optimizer.matrix_rate", "optimizer.momentum", "optimizer.eps",
              "optimizer.weight_decay", "optimizer.clip", "schedule.warmup", "evaluate.batches", "evaluate.patience",
              "evaluate.samples", "objective.agree", "objective.auxiliary"]  # fmt: skip
BETWEEN = ["train.ema", "data.valid_share", "data.wrap", "objective.smoothing", "objective.mask_share",
           "schedule.final", "schedule.decay", "tokenizer.dropout", "optimizer.layer_decay"]  # fmt: skip
WRONG = [(key, 0) for key in AT_LEAST_1] + [(key, -1) for key in AT_LEAST_1]
WRONG += [(key, -1) for key in AT_LEAST_0] + [(key, x) for key in BETWEEN for x in (-0.01, 1.01)]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_number_beyond_the_borders_of_its_key_is_refused_by_name(key: str, value: float) -> None:
    table, name = key.split(".")
    values: dict[str, Any] = {"model": {"size": "gpt2"}, "data": {"train": ["a.txt"]}}
    known = getattr(getattr(Recipe(), table), name)
    values.setdefault(table, {})[name] = float(value) if isinstance(known, float) else value
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        recipe_from(values)


def test_every_number_of_a_recipe_has_borders() -> None:
    """But for the seed, and for those that mean something on either side."""
    free = {"optimizer.betas", "train.lora_alpha", "optimizer.rate"}
    numbers = {
        f"{part.name}.{field.name}"
        for part in dataclasses.fields(Recipe)
        if dataclasses.is_dataclass(getattr(Recipe(), part.name))
        for field in dataclasses.fields(getattr(Recipe(), part.name))
        if isinstance(field.default, int | float) and not isinstance(field.default, bool)
    }
    assert numbers - {*AT_LEAST_1, *AT_LEAST_0, *BETWEEN} <= free


MAY_DIFFER = {"name", "about", "licence", "data.root", "train.workers", "evaluate.log", "evaluate.samples",
              "evaluate.prompt", "checkpoint.keep"}  # fmt: skip


def test_of_every_key_but_a_few_a_resumed_run_says_that_it_differs() -> None:
    """What is only shown, or how often it is, changes no weight."""
    plain = json.loads(json.dumps(Recipe().to_dict()))
    keys = [name if table is None else f"{name}.{table}" for name, value in plain.items()
            for table in (value if isinstance(value, dict) else [None])]  # fmt: skip
    assert len(keys) > 60
    for key in keys:
        changed = json.loads(json.dumps(plain))
        *tables, last = key.split(".")
        (changed[tables[0]] if tables else changed)[last] = "something else"
        found = differences(plain, changed)
        assert [one.partition(":")[0] for one in found] == ([] if key in MAY_DIFFER else [key])
