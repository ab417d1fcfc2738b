"""Tables: what was written is what is read; what is missing is named."""

import csv
import io
import json
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.data_samples import REFUSED, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.data.table_files import read_parallel, read_table, several
from cutaway.errors import InputError, MissingExtra

NAMES = ("id", "text", "label")
FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t\ufeff"), max_size=20)
TABLE = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, FIELDS)), max_size=20)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def as_tsv(rows):
    return "".join("\t".join(row) + "\n" for row in [NAMES, *([row[name] for name in NAMES] for row in rows)])


def as_csv(rows):
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([NAMES, *([row[name] for name in NAMES] for row in rows)])
    return text.getvalue()


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_parquet(rows):
    sink = io.BytesIO()
    schema = pa.schema([(name, pa.string()) for name in NAMES])
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema), sink, row_group_size=3)
    return sink.getvalue()


WRITERS = {"t.tsv": as_tsv, "t.csv": as_csv, "t.jsonl": as_jsonl, "t.parquet": as_parquet}
WRITERS |= {"t.tsv.gz": as_tsv, "t.csv.xz": as_csv, "t.jsonl.gz": as_jsonl, "t.ndjson": as_jsonl}


@pytest.mark.parametrize("name", WRITERS)
@same_folder
@given(rows=TABLE)
def test_rows_written_are_rows_read(tmp_path, name, rows):
    if not rows and "json" in name:
        return  # nothing tells such a file from an empty one
    path = write(tmp_path / name, WRITERS[name](rows))
    assert list(read_table(path)) == rows
    assert list(read_table(path, ["label", "text"])) == [{n: row[n] for n in ("label", "text")} for row in rows]


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.parquet"])
def test_a_missing_column_names_those_that_exist(tmp_path, name):
    path = write(tmp_path / name, WRITERS[name]([dict.fromkeys(NAMES, "x")]))
    with pytest.raises(InputError, match=rf"{name}.*: no column 'sentence'; there are id, text, label"):
        list(read_table(path, ["sentence"]))


def test_rows_can_be_read_again(tmp_path):
    rows = read_table(write(tmp_path / "t.tsv", as_tsv([dict.fromkeys(NAMES, "x")] * 3)))
    assert list(rows) == list(rows) == [dict.fromkeys(NAMES, "x")] * 3


def test_a_header_can_be_given(tmp_path):
    path = write(tmp_path / "t.tsv", "Hi.\tHallo!\ttatoeba\n")
    assert list(read_table(path, ["de"], header=["en", "de", "from"])) == [{"de": "Hallo!"}]


def test_quotes_in_tsv_are_only_characters(tmp_path):
    path = write(tmp_path / "t.tsv", 'text\tlabel\n"so he said\t1\n"a" b\t0\n')
    assert [row["text"] for row in read_table(path)] == ['"so he said', '"a" b']
    path = write(tmp_path / "u.tsv", 'text\tlabel\n"so\nhe\tsaid"\t1\n')
    assert [row["text"] for row in read_table(path, quoted=True)] == ["so\nhe\tsaid"]


def test_files_that_go_their_own_way(tmp_path):
    path = write(tmp_path / "sts.csv", "preface\n5.0\ta\tb\n3.8\tc\td\textra\tfields\n")
    rows = read_table(path, kind="tsv", header=["score", "one", "two"], further_fields=True, skip_lines=1)
    assert [(number, row["two"]) for number, row in rows.numbered()] == [(2, "b"), (3, "d")]


def test_a_row_of_csv_is_named_by_its_first_line(tmp_path):
    path = write(tmp_path / "t.csv", 'a,b\n"1\n1\n1",2\n3,4\n')
    assert [number for number, _ in read_table(path).numbered()] == [2, 5]


def test_numbers_and_lists_become_texts(tmp_path):
    rows = [{"words": ["EU", "rejects"], "tags": [3, 0], "n": 7, "score": 0.5, "yes": True}]
    expected = [{"words": ["EU", "rejects"], "tags": ["3", "0"], "n": "7", "score": "0.5", "yes": "true"}]
    assert list(read_table(write(tmp_path / "t.jsonl", as_jsonl(rows)))) == expected
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), sink)
    assert list(read_table(write(tmp_path / "t.parquet", sink.getvalue()))) == expected


def test_a_list_of_lists_is_no_value(tmp_path):
    path = write(tmp_path / "t.jsonl", as_jsonl([{"words": ["a"]}, {"words": [["a", "b"]]}]))
    with pytest.raises(InputError, match="line 2, words: a list where a text, a number or a list of them is expected"):
        list(read_table(path))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.txt", {}, "does not say what kind"),
        ("t.gz", {}, "does not say what kind"),
        ("t.jsonl", {"header": ["a"]}, "are for TSV and CSV"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, name, options, message):
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / name, **options)


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(REFUSED, match="xls"):
        read_table(tmp_path / "t.tsv", kind="xls")


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 1: two columns have the same name: a, a"):
        list(read_table(write(tmp_path / "t.tsv", "a\ta\n1\t2\n")))


def test_damaged_parquet_names_the_file(tmp_path):
    whole = as_parquet([dict.fromkeys(NAMES, "x")] * 9)
    for data in (b"PAR1", whole[:-9], b"no parquet" * 9, whole[:20] + b"\xff" * 20 + whole[40:]):
        path = write(tmp_path / "t.parquet", data)
        with pytest.raises(InputError, match=r"t\.parquet is damaged or not Parquet"):
            list(read_table(path))


def test_a_null_of_parquet_names_its_row(tmp_path):
    path = write(tmp_path / "t.parquet", as_parquet([dict.fromkeys(NAMES, "x"), {"id": "1"}]))
    with pytest.raises(InputError, match=r"t\.parquet, row 2, text: a null"):
        list(read_table(path))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", as_parquet([]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="'pyarrow' of the extra 'parquet'"):
        list(read_table(path))


@pytest.mark.parametrize("name", ["side", "side.gz", "side.xz"])
@same_folder
@given(pairs=st.lists(st.tuples(FIELDS, FIELDS), min_size=1))
def test_pairs_written_are_pairs_read(tmp_path, name, pairs):
    paths = [write(tmp_path / f"{side}.{name}", "".join(pair[side] + "\n" for pair in pairs)) for side in (0, 1)]
    rows = read_parallel(*paths, names=("en", "de"))
    full = [pair for pair in pairs if all(side and not side.isspace() for side in pair)]
    assert [(row["en"], row["de"]) for row in rows] == full
    assert rows.skipped == len(pairs) - len(full)


def test_several_tables_are_one(tmp_path):
    texts = ["a\n1\n2\n", "a\n", "a\n3\n4\n5\n"]
    tables = [read_table(write(tmp_path / f"{i}.tsv", text)) for i, text in enumerate(texts)]
    rows = several(tables)
    assert [row["a"] for row in rows] == ["1", "2", "3", "4", "5"]
    places = [rows.where(number) for number, _ in rows.numbered()]
    assert [place.removeprefix(f"{tmp_path}/") for place in places] == [
        *("0.tsv, line 2", "0.tsv, line 3", "2.tsv, line 2", "2.tsv, line 3", "2.tsv, line 4"),
    ]


def test_several_pairs_of_files_count_what_they_skip(tmp_path):
    sides = [write(tmp_path / name, "a\n\nc\n") for name in ("1.en", "1.de", "2.en", "2.de")]
    rows = several([read_parallel(*sides[:2]), read_parallel(*sides[2:])])
    assert len(list(rows)) == len(list(rows)) == 4
    assert rows.skipped == 2
    assert [number for number, _ in rows.numbered()] == [1, 3, 4, 6]
    assert rows.where(6).endswith("2.de, line 3")


def test_a_field_may_be_as_long_as_a_line(tmp_path):
    """Python's own limit is 128 KiB, and its message names neither file nor line."""
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"{}",b\n'.format("x" * 500_000))
    assert [len(row["text"]) for row in read_table(path)] == [500_000]


def test_a_quote_that_is_never_closed_is_named_by_its_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('text,label\na,b\n"c,d\n' + ("x" * 99 + "\n") * 20_000)
    with pytest.raises(
        InputError, match=r"x\.csv, line 3: a field of more than 1,048,576 characters; is its quote"
    ) as error:
        list(read_table(path))
    assert "quoted=False" in str(error.value)


def test_half_of_a_character_in_a_line_of_json_is_named_by_its_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b\\ud800"}\n')
    with pytest.raises(InputError, match=r"x\.jsonl, line 2 is not valid JSON: .*\\ud800.* lone surrogate"):
        list(read_table(path))


def test_the_place_of_a_row_is_known_when_all_are_read(tmp_path):
    """Errors are often found later, by whoever cuts the texts."""
    texts = ["a\n1\n2\n", "a\n", "a\n3\n4\n5\n", "a\n6\n"]
    rows = several([read_table(write(tmp_path / f"{i}.tsv", text)) for i, text in enumerate(texts)])
    numbers = [number for number, _ in rows.numbered()]
    expected = ["0.tsv, line 2", "0.tsv, line 3", "2.tsv, line 2", "2.tsv, line 3", "2.tsv, line 4", "3.tsv, line 2"]
    for _ in range(2):
        places = [rows.where(number).removeprefix(f"{tmp_path}/") for number in reversed(numbers)]
        assert places[::-1] == expected
    pairs = [write(tmp_path / name, "a\nb\n") for name in ("1.en", "1.de", "2.en", "2.de")]
    rows = several([read_parallel(*pairs[:2]), read_parallel(*pairs[2:])])
    found = [rows.where(number) for number in [number for number, _ in rows.numbered()]]
    assert [place.split("/")[-1] for place in found] == ["1.de, line 1", "1.de, line 2", "2.de, line 1", "2.de, line 2"]
