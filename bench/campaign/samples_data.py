"""Pictures, tables, texts and tests, as others publish them."""

import csv
import gzip
import io
import json
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from campaign.reader import WORDS, Files, Reader, a_tokenizer, only, sentences

# --- pictures ---------------------------------------------------------------------------------------------------------


def _images(place: Path) -> Reader:
    from PIL import Image

    from cutaway.data.images import image_folder

    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 4), np.uint8)
    rgba = Image.fromarray(pixels)
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("png", "RGB", {}), ("png", "RGBA", {}), ("png", "L", {}), ("png", "P", {}), ("png", "1", {}),
        ("jpg", "RGB", {}), ("jpg", "L", {}), ("jpg", "CMYK", {}), ("jpg", "RGB", {"progressive": True}),
        ("bmp", "RGB", {}), ("bmp", "P", {}), ("gif", "P", {}),
        ("gif", "P", {"save_all": True, "append_images": [rgba.convert("P")]}), ("webp", "RGB", {}),
        ("webp", "RGBA", {"lossless": True}), ("tiff", "RGB", {}), ("tiff", "RGB", {"compression": "tiff_lzw"}),
        ("tiff", "L", {"compression": "tiff_adobe_deflate"}), ("tiff", "1", {"compression": "group4"}),
        ("ppm", "RGB", {}), ("pgm", "L", {}),
    ]  # fmt: skip
    samples = []
    for suffix, mode, options in kinds:
        path = place / f"x.{suffix}"
        rgba.convert(mode).save(path, **options)
        samples.append({f"class/x.{suffix}": path.read_bytes()})
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 200).save(place / "x.png")
    deep = {"class/x.png": (place / "x.png").read_bytes()}
    return Reader("images", samples, lambda folder, out: _sum(image_folder(folder, size=16, cache=out)), 2.0, [deep])


def _sum(images: Any) -> None:
    int(np.asarray(images.pixels, np.int64).sum()), [images.names[label] for label in images.labels.tolist()]


def _idx(place: Path) -> Reader:
    from cutaway.data.images import idx_images

    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 6), np.uint8)
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", *pixels.shape) + pixels.tobytes()
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 5) + bytes([0, 1, 2, 1, 0])
    plain = {"images.idx": images, "labels.idx": labels}
    packed = {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in plain.items()}

    def read(folder: Path, out: Path) -> None:
        suffix = ".gz" if (folder / "images.idx.gz").exists() else ""
        _sum(idx_images(folder / f"images.idx{suffix}", folder / f"labels.idx{suffix}", cache=out))

    return Reader("idx", [plain, packed], read)


def _npz(place: Path) -> Reader:
    from PIL import Image

    from cutaway.data.images import npz_images
    from cutaway.evaluation.examples import _holds_arrays

    pixels = np.random.default_rng(0).integers(0, 256, (5, 6, 6), np.uint8)
    coded = io.BytesIO()
    Image.fromarray(pixels[0]).save(coded, "PNG")
    one = np.frombuffer(coded.getvalue(), np.uint8)
    contents: list[dict[str, Any]] = [
        {"images": pixels, "labels": np.arange(5)},
        {"images": np.stack([pixels] * 3, axis=-1), "labels": np.arange(5, dtype=np.uint8)},
        {"jpeg_bytes": np.tile(one, 3), "offsets": np.arange(4) * len(one), "labels": np.array([0, 1, 0])},
    ]
    samples = []
    for arrays in contents:
        for save in (np.savez, np.savez_compressed):
            path = place / "x.npz"
            save(path, **arrays)
            samples.append({"x.npz": path.read_bytes()})

    def read(folder: Path, out: Path) -> None:
        path = folder / "x.npz"
        _sum(npz_images(path, cache=out, **({} if _holds_arrays(path) else {"size": 8})))

    return Reader("npz", samples, read, 2.0)


# --- tables and texts -------------------------------------------------------------------------------------------------


def _table_reader(name: str, samples: list[Files], share: float = 1.0, odd: Sequence[Files] = ()) -> Reader:
    from cutaway.data.labels import LabelColumn
    from cutaway.data.table_examples import tokenised_columns
    from cutaway.data.table_files import read_table

    tokenizer = a_tokenizer()
    labels = {
        "label": LabelColumn("label"),
        "score": LabelColumn("score", "number"),
        "tags": LabelColumn("tags", "tags"),
    }

    def read(folder: Path, out: Path) -> None:
        path = only(folder)
        wanted = labels[path.name.split(".")[0]]
        found = tokenised_columns(read_table(path, ["text", wanted.column]), ["text"], tokenizer, wanted, cache=out)
        json.dumps(found.label_names, ensure_ascii=False).encode()

    return Reader(name, samples, read, share, odd)


def _rows() -> list[dict[str, Any]]:
    draw = Random(1)
    texts = sentences(12, draw)
    return [
        {
            "text": text,
            "label": draw.choice("abc"),
            "score": draw.random(),
            "tags": [draw.choice("xy") for _ in text.split()],
        }
        for text in texts
    ]


def _tables(place: Path) -> Reader:
    samples = []
    for kind in ("label", "score", "tags"):
        rows = [[row["text"], " ".join(row[kind]) if kind == "tags" else str(row[kind])] for row in _rows()]
        for suffix, options in (
            ("csv", {"delimiter": ","}),
            ("csv", {"quoting": csv.QUOTE_ALL}),
            ("tsv", {"delimiter": "\t"}),
        ):
            text = io.StringIO()
            csv.writer(text, lineterminator="\n", **options).writerows([["text", kind], *rows])
            data = text.getvalue().encode()
            samples += [{f"{kind}.{suffix}": data}, {f"{kind}.{suffix}.gz": gzip.compress(data, mtime=0)}]
    return _table_reader("tables (CSV, TSV)", samples, 2.0)


def _json_tables(place: Path) -> Reader:
    samples = []
    for kind in ("label", "score", "tags"):
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows()).encode()
        samples += [{f"{kind}.jsonl": data}, {f"{kind}.jsonl.gz": gzip.compress(data, mtime=0)}]
    return _table_reader("tables (JSON lines)", samples)


def _parquet(place: Path) -> Reader:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = _rows()
    texts = [row["text"] for row in rows]
    n = len(rows)
    odd = pa.StringArray.from_buffers(
        2, pa.py_buffer(np.array([0, 3, 5], "<i4").tobytes()), pa.py_buffer(b"a\xff\xfe\xed\xa0")
    )
    others = {
        "date32": pa.array([2**31 - 1] * n, pa.int32()).view(pa.date32()), "date64": pa.array(range(n), pa.date64()),
        "time": pa.array(range(n), pa.time64("ns")), "stamp": pa.array([2**62] * n, pa.timestamp("us")),
        "zone": pa.array(range(n), pa.timestamp("us", "Nowhere/Land")),
        "span": pa.array([2**62] * n, pa.duration("us")), "decimal": pa.array([None] * n, pa.decimal128(38, 2)),
        "binary": pa.array([b"\xff"] * n), "null": pa.nulls(n), "nested": pa.array([[[1]]] * n),
        "map": pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int32())), "struct": pa.array([{"a": 1}] * n),
        "float": pa.array([float("nan")] * n), "half": pa.array(np.zeros(n, np.float16)),
        "coded": pa.array(texts).dictionary_encode(), "large": pa.array(texts, pa.large_string()),
        "bool": pa.array([True] * n), "u64": pa.array([2**64 - 1] * n, pa.uint64()),
    }  # fmt: skip
    tables = {kind: pa.table({"text": texts, kind: [row[kind] for row in rows]}) for kind in ("label", "score", "tags")}
    samples = []
    for kind, table in tables.items():
        for options in ({}, {"compression": "none"}, {"compression": "gzip", "use_dictionary": False}):
            pq.write_table(table, place / "x.parquet", **options)
            samples.append({f"{kind}.parquet": (place / "x.parquet").read_bytes()})
    unusual = []
    for kind in ("label", "score"):
        for values in others.values():
            pq.write_table(pa.table({"text": texts, kind: values}), place / "x.parquet")
            unusual.append({f"{kind}.parquet": (place / "x.parquet").read_bytes()})
    pq.write_table(pa.table({"text": odd, "label": odd}), place / "x.parquet")
    unusual.append({"label.parquet": (place / "x.parquet").read_bytes()})
    return _table_reader("tables (Parquet)", samples, 2.0, unusual)


def _parallel(place: Path) -> Reader:
    from cutaway.data.table_examples import tokenised_columns
    from cutaway.data.table_files import read_parallel

    tokenizer = a_tokenizer()
    sides = {side: ("\n".join(sentences(20, Random(side))) + "\n").encode() for side in ("en", "de")}
    samples = [
        {f"x.{side}": data for side, data in sides.items()},
        {f"x.{side}.gz": gzip.compress(data, mtime=0) for side, data in sides.items()},
    ]

    def read(folder: Path, out: Path) -> None:
        rows = read_parallel(*sorted(folder.iterdir()))
        len(tokenised_columns(rows, ["source", "target"], tokenizer, cache=out))

    return Reader("parallel texts", samples, read)


def _texts(place: Path) -> Reader:
    from cutaway.data.corpus import tokenised_documents

    tokenizer = a_tokenizer()
    text = "\n".join("\n".join(sentences(5, Random(i))) + "\n" for i in range(12)).encode()
    samples = [
        {"file.txt": text}, {"line.txt": text}, {"blank_line.txt": text},
        {"form_feed.txt": text.replace(b"\n\n", b"\f")}, {"file.txt.gz": gzip.compress(text, mtime=0)},
    ]  # fmt: skip

    def read(folder: Path, out: Path) -> None:
        path = only(folder)
        split: Any = path.name.split(".")[0]
        len(tokenised_documents([path], tokenizer, split=split, end_id=0, cache=out))

    return Reader("texts", samples, read)


def _word_tests(place: Path) -> Reader:
    from cutaway.evaluation.lambada import read_last_words
    from cutaway.evaluation.winograd_files import read_schemas
    from cutaway.evaluation.word_tests import read_word_test

    schemas = "".join(
        f"The {a} sat on the {b} because it was old.\nit\nThe {a},the {b}\nthe {b}\n\n"
        for a, b in (("cat", "mat"), ("dog", "house"), ("bird", "tree"))
    )
    texts = {
        "questions.txt": ": capitals\nAthens Greece Paris France\nOslo Norway Rome Italy\n: plurals\na b c d\n",
        "likeness.tsv": "# two words\ntiger\tcat\t7.35\nbook\tpaper\t7.46\ncomputer\tkeyboard\t7.62\n",
        "wsc.txt": schemas.replace("The cat,the mat\n", "the cat,the mat\n"),
        "lambada.jsonl": "".join(
            json.dumps({"context": s, "continuation": "mat"}) + "\n" for s in sentences(5, Random(2))
        ),
    }

    def read(folder: Path, out: Path) -> None:
        path = only(folder)
        read_word_test([path]) or read_schemas([path]) or read_last_words([path])

    return Reader("tests of words", [{name: text.encode()} for name, text in texts.items()], read)


def _glossary(place: Path) -> Reader:
    from cutaway.decoding.rules.terms import Glossary, read_terms

    tokenizer = a_tokenizer()
    text = "".join(f"{a}\t{b}\n" for a, b in zip(WORDS, reversed(WORDS), strict=True)).encode()

    def read(folder: Path, out: Path) -> None:
        glossary = Glossary(read_terms(folder / "terms.tsv"), tokenizer)
        glossary.wanted("The cat sat on the mat. It was old.")

    return Reader("glossaries", [{"terms.tsv": text}], read)


def _zips(place: Path) -> Reader:
    from cutaway.evaluation.minimal_pair_files import read_pairs

    rows = [
        {
            "sentence_good": f"{a} .",
            "sentence_bad": f". {a}",
            "UID": "order",
            "field": "syntax",
            "linguistics_term": "x",
        }
        for a in sentences(6, Random(3))
    ]
    table = "".join(json.dumps(row) + "\n" for row in rows).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    samples = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, data in {
                "blimp/a.jsonl": table,
                "blimp/b.jsonl": table,
                "c.csv": text.getvalue().encode(),
                "note.txt": b"x",
            }.items():
                archive.writestr(zipfile.ZipInfo(name), data, method)
        samples.append({"x.zip": file.getvalue()})
    samples += [{"x.jsonl": table}, {"x.csv": text.getvalue().encode()}, {"a.jsonl": table, "b.jsonl": table}]

    def read(folder: Path, out: Path) -> None:
        found = read_pairs([folder] if (folder / "a.jsonl").exists() else [only(folder)])
        json.dumps([str(pair) for pair in found[0]] if found else [], ensure_ascii=False).encode()

    return Reader("zips and tables of pairs", samples, read, 2.0)


MAKERS = [_images, _idx, _npz, _tables, _json_tables, _parquet, _parallel, _texts, _word_tests, _glossary, _zips]
