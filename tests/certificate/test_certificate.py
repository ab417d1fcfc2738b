"""certificate.json: strict, whole, and known to be stale when the model is another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from helpers.tokenizers_of_bytes import byte_level

from cutaway import verify
from cutaway.certificate import Certificate, certificate_path, fingerprint, read_certificate
from cutaway.certificate.inputs import SENTENCES, short_inputs
from cutaway.checkpoints import load, save
from cutaway.errors import CheckpointError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tiny("gpt2", vocab_size=400, dtype=torch.float32), tmp_path / "model", byte_level())
    return tmp_path / "model"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Of what every `folder` holds."""
    made = tmp_path_factory.mktemp("certificate")
    save(tiny("gpt2", vocab_size=400, dtype=torch.float32), made, byte_level())
    return verify(made, quick=True)


def test_it_is_read_as_it_was_written(folder: Path, certificate: Certificate) -> None:
    assert certificate.passed
    assert (certificate.machine["device"], certificate.precision) == ("cpu", "fp32")
    asked = "8 rows of 1 … 18 random ids and 4 sentences, and 2 rows of 8 and 32"
    assert certificate.entry("batch = single").inputs == asked
    assert (certificate.length, certificate.max_len) == (32, 32)
    certificate.write(certificate_path(folder))
    assert read_certificate(folder / "certificate.json") == certificate
    assert certificate.changed(folder) == []
    load(folder)  # the file disturbs nobody


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_another_model_makes_it_stale(folder: Path, certificate: Certificate, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-2] ^= 1
    (folder / name).write_bytes(data)
    assert certificate.changed(folder) == [name]


def test_shards_are_counted(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    shards = {"model.safetensors.index.json", "model-1.safetensors"}
    assert set(fingerprint(folder)) == {"config.json", "tokenizer.json", *shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../model-1.safetensors"}}))
    with pytest.raises(CheckpointError, match="not found"):
        fingerprint(folder)


def test_a_file_has_its_certificate_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert certificate_path(tmp_path / "model.gguf") == tmp_path / "model.gguf.certificate.json"
    assert list(fingerprint(tmp_path / "model.gguf")) == ["model.gguf"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "not a certificate of version 3"),
        ({"spare": 1}, "'spare' is missing, or is not a key of a certificate"),
        ({"seed": "0"}, "seed='0'"),
        ({"seed": None}, "seed=None"),
        ({"length": 18.5}, "length=18.5"),
        ({"files": {"a": 1}}, "files="),
        ({"quick": 1}, "quick=1"),
        ({"entries": [{}]}, "an entry is not one"),
        ({"entries": [1]}, "an entry is not one"),
    ],
)
def test_what_is_no_certificate_is_refused(
    tmp_path: Path, certificate: Certificate, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(CheckpointError, match=said):
        read_certificate(written(tmp_path, certificate.to_dict() | change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "great"}, "'great'"),
        ({"value": "0"}, "value='0'"),
        ({"law": None}, "law=None"),
        ({"value": 10**30}, "value=1000"),
    ],
)
def test_what_is_no_entry_is_refused(
    tmp_path: Path, certificate: Certificate, change: dict[str, Any], said: str
) -> None:
    values = certificate.to_dict()
    values["entries"][0] |= change
    with pytest.raises(CheckpointError, match=said):
        read_certificate(written(tmp_path, values))


def written(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "certificate.json"
    path.write_text(json.dumps(values))
    return path


def test_without_a_certificate_it_says_who_writes_one(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="`cutaway verify` writes it"):
        read_certificate(folder / "certificate.json")


def test_sentences_are_asked_where_there_is_a_tokenizer() -> None:
    model, tokenizer = tiny("gpt2", vocab_size=400, max_len=16), byte_level()
    asked = short_inputs(model, tokenizer, 0)
    assert asked.rows[8:] == [tokenizer.encode(text)[:16] for text in SENTENCES]
    assert max(map(len, asked.rows)) == 16
    translator = short_inputs(tiny("transformer", vocab_size=400, start_id=1), tokenizer, 0)
    assert len(translator.rows) == len(translator.targets) == 12
    assert all(row[0] == 1 for row in translator.targets[8:])


def test_a_padding_token_is_never_asked() -> None:
    asked = short_inputs(tiny("roberta", vocab_size=4, pad_id=1), None, 0)
    assert {id for row in asked.rows for id in row} == {0, 2, 3}


def test_a_file_that_came_or_went_makes_it_stale(folder: Path, certificate: Certificate) -> None:
    """A tokenizer is part of what answers, even where nothing else changed."""
    assert certificate.changed(folder) == []
    (folder / "tokenizer.json").rename(folder / "kept")
    assert certificate.changed(folder) == ["tokenizer.json"]
    bare = replace(certificate, files={name: certificate.files[name] for name in ("config.json", "model.safetensors")})
    assert bare.changed(folder) == []
    (folder / "kept").rename(folder / "tokenizer.json")
    assert bare.changed(folder) == ["tokenizer.json"]
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    shards = ["model-1.safetensors", "model.safetensors", "model.safetensors.index.json"]
    assert certificate.changed(folder) == shards


KINDS = ["family", "task", "parameters", "precision", "files", "versions", "machine", "date", "seed", "quick", "length",
         "max_len", "entries"]  # fmt: skip


@pytest.mark.parametrize("key", KINDS)
def test_every_part_of_a_certificate_is_needed_and_of_its_kind(
    key: str, tmp_path: Path, certificate: Certificate
) -> None:
    values = certificate.to_dict()
    assert {*values} == {"schema", *KINDS}
    for wrong in ([3], {"a": 3}, 1.5, object):
        if wrong is not object:
            with pytest.raises(CheckpointError):
                read_certificate(written(tmp_path, values | {key: wrong}))
    if key in ("length", "max_len"):
        assert getattr(read_certificate(written(tmp_path, values | {key: None})), key) is None
    else:
        with pytest.raises(CheckpointError, match=key):
            read_certificate(written(tmp_path, values | {key: None}))
    del values[key]
    with pytest.raises(CheckpointError, match=f"'{key}' is missing"):
        read_certificate(written(tmp_path, values))


@pytest.mark.parametrize(
    ("verdicts", "passed"),
    [(["passed"], True), (["passed", "not applicable"], True), (["not measured", "passed"], True),
     (["passed", "failed"], False), (["error", "passed"], False)],
)  # fmt: skip
def test_what_failed_or_broke_off_anywhere_fails_the_whole(
    verdicts: list[Any], passed: bool, certificate: Certificate
) -> None:
    entries = [replace(certificate.entries[0], verdict=verdict) for verdict in verdicts]
    assert replace(certificate, entries=entries).passed is passed
