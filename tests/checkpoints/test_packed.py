"""Weights in 8 or 16 bits on disk: what is stored comes out, to the bit, however the folder is read."""

from pathlib import Path

import pytest
import torch
from helpers.tiny_models import ALL, TRANSLATORS, close, inputs, tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.checkpoints import export, load, pack, save
from cutaway.checkpoints.convert import measure_packed, write_packed
from cutaway.checkpoints.model_folder import write_shards
from cutaway.checkpoints.packed import SCALE, UnpackedTensors, pack_tensors
from cutaway.checkpoints.tensors import INDEX, SINGLE, TensorFile, open_tensors
from cutaway.errors import CheckpointError, InputError
from cutaway.model.kernels.int8 import Int8Linear, rounded
from cutaway.model.precision import with_precision

families = pytest.mark.parametrize("name", ALL)


def stored_matrices(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Whole numbers and scales, as they lie in the file."""
    file = open_tensors(folder)
    return {n: (file.read(n), file.read(n + SCALE)) for n in file.names() if file.dtype(n) is torch.int8}


@settings(max_examples=200)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 10**6), st.floats(-44, 37))
def test_rounding_what_was_rounded_changes_no_bit(n_out: int, n_in: int, seed: int, power: float):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n_out, n_in, generator=generator) * 10.0**power
    weight[:: seed % 3 + 1, :: seed % 5 + 1] = 0
    whole, scale = rounded(weight)
    product = whole.float() * scale[:, None]
    assert torch.equal(product.double(), whole.double() * scale.double()[:, None])  # exact
    again, same = rounded(product)
    assert torch.equal(whole, again)
    assert torch.equal(scale.view(torch.int32), same.view(torch.int32))
    assert int(whole.abs().max()) <= 127
    assert ((product - weight).abs() <= scale[:, None] * 0.501).all()


@families
def test_8_bits_run_with_the_very_numbers_that_are_stored(name: str, tmp_path: Path):
    model = tiny(name, dtype=torch.float32)
    save(model, tmp_path, store="int8", shard_size=5000)
    stored = list(stored_matrices(tmp_path).values())
    for running in (with_precision(load(tmp_path), "int8"), with_precision(model, "int8")):
        parts = [part for part in running.modules() if isinstance(part, Int8Linear)]
        assert parts
        for part in parts:
            twins = [scale for whole, scale in stored if torch.equal(whole, part.weight)]
            assert any(torch.equal(scale, part.scale) for scale in twins)


@families
def test_what_is_loaded_is_the_stored_numbers_times_their_scales(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cutaway.checkpoints.weight_source.CHUNK", 500)  # a few rows at a time, where a copy is made
    model = tiny(name, dtype=torch.float32)
    save(model, tmp_path, store="int8")
    stored, before = stored_matrices(tmp_path), dict(model.named_parameters())
    for dtype in (torch.float32, torch.float64):
        for weight, parameter in load(tmp_path, dtype=dtype).named_parameters():
            if weight in stored:
                whole, scale = stored[weight]
                assert torch.equal(parameter, (whole * scale[:, None]).to(dtype))
            else:
                assert torch.equal(parameter, before[weight].to(dtype))


@families
@pytest.mark.parametrize("store", ["int8", "bf16"])
def test_packing_again_gives_the_same_files(name: str, store: str, tmp_path: Path):
    save(tiny(name, dtype=torch.float32), tmp_path / "one", store=store)
    save(load(tmp_path / "one"), tmp_path / "two", store=store)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@families
@pytest.mark.parametrize("store", ["int8", "bf16"])
def test_every_weight_is_stored_once(name: str, store: str, tmp_path: Path):
    model = tiny(name, dtype=torch.float32)
    save(model, tmp_path, store=store)
    source = UnpackedTensors(open_tensors(tmp_path))
    assert sum(source[one].numel() for one in source) == model.n_parameters()
    assert set(source) == {one for one, _ in model.named_parameters()}
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2 and p.shape[1] >= 16)
    small = sum(
        t.numel() for t in pack_tensors(dict(model.named_parameters()), store).values() if t.dtype != torch.float32
    )
    assert small == matrices > 0.9 * model.n_parameters() - 200


def test_rows_of_sixteen_numbers_are_packed_and_shorter_ones_stay():
    packed = pack_tensors({f"{n}": torch.randn(3, n) for n in (15, 16, 17)}, "int8")
    assert {name: tensor.dtype for name, tensor in packed.items() if tensor.ndim == 2} == {
        "15": torch.float32, "16": torch.int8, "17": torch.int8,
    }  # fmt: skip


def test_16_bits_are_those_of_the_weights_and_vectors_stay(tmp_path: Path):
    model = tiny("gpt2", dtype=torch.float32)
    save(model, tmp_path, store="bf16")
    before = dict(model.named_parameters())
    for name, parameter in load(tmp_path).named_parameters():
        wanted = before[name].bfloat16().float() if parameter.ndim == 2 else before[name]
        assert torch.equal(parameter, wanted)


@families
def test_the_cost_of_rounding_is_measured(name: str, tmp_path: Path):
    model = tiny(name, dtype=torch.float32)
    found = {}
    for store in ("int8", "bf16"):
        save(model, tmp_path / store, store=store)
        found[store] = measure_packed(model, load(tmp_path / store), store)
        assert found[store].holds
    assert 0 < found["bf16"].difference < found["int8"].difference
    assert measure_packed(model, model, "int8").difference == 0


@families
def test_an_export_of_a_packed_model_is_the_packed_model(name: str, tmp_path: Path):
    """What other tools get: the same numbers, whichever way they went."""
    changes = {"gpt": {"d_ff": 96}, "transformer-rotary": {"positions": "sinusoidal"}}.get(name, {})
    changes |= {"start_id": 1} if name in TRANSLATORS else {}
    save(tiny(name, dtype=torch.float32, **changes), tmp_path / "packed", store="int8", shard_size=5000)
    packed, given = load(tmp_path / "packed"), inputs(name, dtype=torch.float32)
    export(packed, tmp_path / "hf")
    with torch.no_grad():
        assert close(load(tmp_path / "hf")(*given), packed(*given))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40_000))
def test_shards_hold_what_one_file_holds(tmp_path_factory: pytest.TempPathFactory, shard_size: int):
    one, many = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("many")
    model = tiny("gpt2", dtype=torch.float32)
    save(model, one, store="int8")
    save(model, many, store="int8", shard_size=shard_size)
    whole, split = open_tensors(one), open_tensors(many)
    assert set(whole) == set(split)
    assert all(torch.equal(whole[name], split[name]) for name in whole)
    shards = [TensorFile(file, [file]) for file in many.glob("model-*-of-*.safetensors")]
    assert bool(shards) == (not (many / SINGLE).exists())
    assert all(len(shard) == 1 or sum(shard[name].nbytes for name in shard) <= shard_size for shard in shards)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 16))
def test_a_shard_takes_the_next_tensor_as_long_as_it_fits(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shard_size: int
):
    """To the byte; one that is larger than a shard stands alone."""
    folder, shards = tmp_path_factory.mktemp("shards"), [[]]
    tensors = {f"{n:02d}": torch.zeros(size, dtype=torch.uint8) for n, size in enumerate(sizes)}
    write_shards(folder, tensors, shard_size)
    for name, size in zip(tensors, sizes, strict=True):
        if shards[-1] and sum(tensors[one].numel() for one in shards[-1]) + size > shard_size:
            shards.append([])
        shards[-1].append(name)
    files = sorted(folder.glob("*.safetensors"))
    assert [sorted(TensorFile(file, [file])) for file in files] == shards


def test_a_new_model_leaves_nothing_of_the_old_one(tmp_path: Path):
    """One file, many, fewer, one: each time the new model is read, and no old weights lie there."""
    for seed, shard_size in enumerate([None, 3000, 9000, None, 3000]):
        model = tiny("gpt2", dtype=torch.float32, seed=seed)
        save(model, tmp_path, shard_size=shard_size)
        for mine, theirs in zip(model.parameters(), load(tmp_path).parameters(), strict=True):
            assert torch.equal(mine, theirs)
        source = open_tensors(tmp_path)
        files = {shard.path.name for shard in source._shard_of.values()}
        assert {file.name for file in tmp_path.glob("*.safetensors")} == files
        assert (tmp_path / INDEX).exists() == (len(files) > 1)


def test_what_cannot_be_said_is_refused_and_nothing_written(tmp_path: Path):
    model = tiny("gpt2", dtype=torch.float32)
    with pytest.raises(InputError, match="store='int4' is not one of int8, bf16"):
        save(model, tmp_path, store="int4")
    with pytest.raises(InputError, match="shard_size=0"):
        save(model, tmp_path, shard_size=0)
    for bad in (float("nan"), float("inf")):
        model.get_parameter("embedding.tokens.weight").data[3, 5] = bad
        with pytest.raises(CheckpointError, match=r"'embedding.tokens.weight' has a number that is not finite"):
            save(model, tmp_path, store="int8")
    assert not list(tmp_path.iterdir())


def test_the_card_the_licence_and_the_recipe_come_along(tmp_path: Path):
    save(tiny("gpt2", dtype=torch.float32), tmp_path / "model")
    for name in ("README.md", "recipe.toml", "notes.txt", "certificate.json"):
        (tmp_path / "model" / name).write_text("x")
    pack(tmp_path / "model", tmp_path / "small")
    names = {file.name for file in (tmp_path / "small").iterdir()}
    assert names == {"README.md", "recipe.toml", "config.json", "model.safetensors"}


def test_pack_refuses_to_replace_a_model_unless_it_is_told_to(tmp_path: Path):
    save(tiny("gpt2", dtype=torch.float32), tmp_path / "model")
    pack(tmp_path / "model", tmp_path / "small")
    with pytest.raises(InputError, match=r"is not empty: .* or replace the model in it with force=True"):
        pack(tmp_path / "model", tmp_path / "small")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    for itself in ("model", "small/../model", "link"):
        with pytest.raises(InputError, match="is the model itself"):
            pack(tmp_path / "model", tmp_path / itself, force=True)
    with pytest.raises(InputError, match="store='int4' is not one of 'int8', 'bf16'"):
        pack(tmp_path / "model", tmp_path / "other", store="int4")  # type: ignore[arg-type]
    assert pack(tmp_path / "model", tmp_path / "small", store="bf16", force=True).dtype == "bfloat16"


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_model_is_loaded_in_a_precision(tmp_path: Path, precision: str, dtype: torch.dtype):
    save(tiny("gpt2", dtype=torch.float32), tmp_path)
    assert load(tmp_path, precision=precision).dtype == dtype


def test_a_model_is_loaded_with_8_bit_matrices(tmp_path: Path):
    model = tiny("gpt2", dtype=torch.float32)
    save(model, tmp_path, store="int8")
    loaded = load(tmp_path, precision="int8")
    assert any(isinstance(part, Int8Linear) for part in loaded.modules())
    given = inputs("gpt2")
    assert torch.equal(loaded(*given), with_precision(load(tmp_path), "int8")(*given))
    with pytest.raises(InputError, match="both set the type of the weights"):
        load(tmp_path, precision="int8", dtype=torch.bfloat16)


def test_card_licence_and_recipe_all_come_along_where_they_are_files(tmp_path: Path):
    source, model = tmp_path / "source", tiny("gpt2", dtype=torch.float32)
    source.mkdir()
    for name in ("README.md", "LICENSE", "recipe.toml", "LICENSE.bak", "notes.txt"):
        (source / name).write_text(name)

    def carried(folder: Path) -> dict[str, str]:
        write_packed(source, model, folder, None, store="int8")
        return {file.name: file.read_text() for file in folder.iterdir() if (source / file.name).exists()}

    assert carried(tmp_path / "one") == {name: name for name in ("README.md", "LICENSE", "recipe.toml")}
    (source / "LICENSE").unlink()
    (source / "LICENSE").mkdir()
    assert carried(tmp_path / "two") == {name: name for name in ("README.md", "recipe.toml")}
