"""Parquet: what pyarrow reads is read, and what no column of texts or numbers holds is refused by name."""

from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random

import pytest
from helpers.limits import limits

from cutaway.errors import InputError
from cutaway.parquet import read_parquet, text_columns

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WORDS = ["a", "é", "漢字", "", "\U0001f600", "a", "a"]
READ = {
    "texts": pa.array(WORDS),
    "large texts": pa.array(WORDS, pa.large_string()),
    "coded texts": pa.array(WORDS).dictionary_encode(),
    "texts and nulls": pa.array([*WORDS[:-1], None]),
    "whole numbers": pa.array(range(7), pa.int32()),
    "large numbers": pa.array([2**64 - 1] * 7, pa.uint64()),
    "numbers": pa.array([0.5] * 7),
    "truth": pa.array([True, None] * 3 + [False]),
    "lists of texts": pa.array([["a", "b"], [], ["a"], ["é"], ["a"], ["b", None], None]),
    "lists of numbers": pa.array([[1, 2]] * 7),
    "nulls": pa.nulls(7),
}
REFUSED = {
    "dates": pa.array([2**31 - 1] * 7, pa.int32()).view(pa.date32()),
    "usual dates": pa.array([date(2020, 1, 1)] * 7),
    "times": pa.array([2**62] * 7, pa.timestamp("us", "Nowhere/Land")),
    "decimals": pa.array([None] * 7, pa.decimal128(38, 2)),
    "bytes": pa.array([b"\xff"] * 7),
    "maps": pa.array([[("a", 1)]] * 7, pa.map_(pa.string(), pa.int32())),
    "structures": pa.array([{"a": 1}] * 7),
    "lists of dates": pa.array([[date(2020, 1, 1)]] * 7),
}


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"row_group_size": 2, "compression": "gzip"}])
def test_rows_are_those_that_pyarrow_reads(tmp_path: Path, kind: str, options: dict):
    table = pa.table({"x": READ[kind], "n": list(range(7))})
    pq.write_table(table, tmp_path / "x.parquet", **options)
    assert list(read_parquet(tmp_path / "x.parquet")) == table.to_pylist()
    assert list(read_parquet(tmp_path / "x.parquet", ["n"])) == [{"n": i} for i in range(7)]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_column_of_what_is_no_text_is_refused_by_name(tmp_path: Path, kind: str):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": WORDS, "when": REFUSED[kind]}), path)
    with pytest.raises(InputError, match=r"the column 'when' holds \w+") as error:
        list(read_parquet(path))
    assert str(path) in str(error.value)
    assert len(list(read_parquet(path, ["text"]))) == 7, "a column that nobody asks for may hold anything"
    assert text_columns(path) == ["text"]


def test_texts_that_are_not_utf_8_are_refused(tmp_path: Path):
    offsets, data = pa.py_buffer(bytes([0, 0, 0, 0, 2, 0, 0, 0])), pa.py_buffer(b"a\xff")
    pq.write_table(pa.table({"text": pa.StringArray.from_buffers(1, offsets, data)}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet is damaged or not Parquet: .*utf-8"):
        list(read_parquet(tmp_path / "x.parquet"))


def test_a_file_that_is_cut_or_changed_is_refused_or_read(tmp_path: Path):
    path, draw = tmp_path / "x.parquet", Random(0)
    pq.write_table(pa.table({"text": WORDS * 50, "n": list(range(350))}), path)
    data = path.read_bytes()
    for _ in range(300):
        changed = bytearray(data[: draw.choice((len(data), draw.randrange(len(data))))])
        for _ in range(draw.randrange(1, 4)):
            if changed:
                changed[draw.randrange(len(changed))] = draw.randrange(256)
        path.write_bytes(changed)
        with suppress(InputError):
            list(read_parquet(path))


def test_one_long_text_in_many_rows_is_one_text(tmp_path: Path):
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["x" * 900_000])
    pq.write_table(pa.table({"text": texts}), tmp_path / "x.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    with limits(20, 512):
        assert sum(len(row["text"]) for row in read_parquet(tmp_path / "x.parquet")) == 900_000 * 5000
