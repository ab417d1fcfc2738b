"""Changes to files of a form: a header is taken apart, spoilt, and put together with lengths and checksums that fit."""

import io
import json
import re
import struct
import zipfile
import zlib
from random import Random

from campaign.changed_bytes import BYTES, NUMBERS, Change
from campaign.changed_json import Raw, json_changed, written


def npy(data: bytes, draw: Random) -> bytes:
    """Another dtype, shape or order, in a header that is otherwise sound."""
    n = int.from_bytes(data[8:10], "little")
    head = data[10 : 10 + n].decode("latin-1")
    kind, shape = re.search(r"'descr': ('[^']*')", head), re.search(r"'shape': (\([^)]*\))", head)
    kinds = (
        "'|O'", "'|O8'", "'<f8'", "'<f2'", "'>i4'", "'<c16'", "'|S1099511627776'", "'<U99999999'", "'|V0'",
        "'<M8[ns]'", "'|b1'", "[('a', '<i4')]", "[('a', '|O')]", "'foo'", "None", "'|S0'", "3", "'<i8'", "'|u1'",
        "'<f4'", "{'names': ['a'], 'formats': ['<i4'], 'offsets': [1099511627776]}",
    )  # fmt: skip
    shapes = (
        "()", "(0,)", "(1,)", "(-1,)", "(1099511627776,)", "(1099511627776, 0)", "(4611686018427387904, 4)",
        "(2, 2, 2)", "(1.5,)", "('a',)", "5", "(10**9,)", "(True,)", "(" + "1, " * 70 + ")", "(None,)", "(0, 0)",
        "(3, 3)",
    )  # fmt: skip
    if kind and shape:
        match draw.randrange(4):
            case 0:
                head = head.replace(kind[1], draw.choice(kinds))
            case 1:
                head = head.replace(shape[1], draw.choice(shapes))
            case 2:
                head = head.replace(
                    "'fortran_order': False",
                    draw.choice(
                        ("'fortran_order': True", "'fortran_order': None", "'x': 1", "'fortran_order': False, 'x': 1")
                    ),
                )
            case _:
                head = draw.choice(
                    (
                        "{}",
                        "[",
                        "1",
                        "{'descr': " + "(" * 5000,
                        " " * 60_000,
                        "\xff" * 50,
                        head.strip() + "#",
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }",
                        "__import__('os')",
                        head.replace("'", '"'),
                        head[:-30],
                    )
                )
    encoded = head.encode("latin-1", "replace")[:65_000]
    version = draw.choice((data[6:8],) * 6 + (b"\2\0", b"\3\0", b"\xff\0", b"\0\0"))
    length = struct.pack("<I" if version in (b"\2\0", b"\3\0") else "<H", len(encoded))
    return data[:6] + version + length + encoded + data[10 + n :]


def zip_members(data: bytes, draw: Random) -> bytes:
    """Members that are changed, missing, doubled, packed otherwise, or have another name."""
    from campaign.changes import changed

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = draw.randrange(len(members))
    name, its = members[at]
    match draw.randrange(6):
        case 0 | 1 | 2:
            members[at] = name, changed(name, its, [other for _, other in members], draw)
        case 3:
            del members[at]
        case 4:
            names = (
                "images.npy", "labels.npy", "offsets.npy", "a/../b.jsonl", "/x.jsonl", "x", "\0.jsonl", "é.jsonl",
                "a\\b.jsonl", "", "x" * 300 + ".jsonl", "sub/", ".jsonl", "x.parquet", "a.csv.gz",
            )  # fmt: skip
            members[at] = draw.choice(names), its
        case _:
            members.insert(at, (name, members[draw.randrange(len(members))][1]))
    out = io.BytesIO()
    method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, its in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), its, method)
    return out.getvalue()


def zip_directory(data: bytes, draw: Random) -> bytes:
    """A field in the list of members: a size, a method, a flag, a place."""
    at = data.rindex(draw.choice((b"PK\1\2", b"PK\5\6", b"PK\3\4"))) + draw.randrange(4, 46)
    size = draw.choice((1, 2, 4))
    number = draw.choice((*NUMBERS, draw.getrandbits(8 * size), len(data))) & ((1 << 8 * size) - 1)
    return data[:at] + number.to_bytes(size, "little") + data[at + size :]


def zip_bomb(data: bytes, draw: Random) -> bytes:
    """A member of some megabytes of one character, which takes few bytes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, out = draw.randrange(len(members)), io.BytesIO()
    name, its = members[at]
    filler = draw.choice((b"\0", b" ", b"a", b"\n", its[-1:])) * draw.choice((1 << 20, 1 << 23, 1 << 26))
    members[at] = name, its + filler
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, its in members:
            archive.writestr(zipfile.ZipInfo(name), its, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def safetensors(data: bytes, draw: Random) -> bytes:
    """Another header, with the length that it has, or nearly."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    entry = header[draw.choice(list(header))]
    match draw.randrange(4):
        case 0 if "dtype" in entry:
            entry["dtype"] = draw.choice(
                ("F64", "F32", "F16", "BF16", "I8", "BOOL", "U8", "I64", "F8_E4M3", "F4", "X", "", "C64")
            )
        case 1 if "shape" in entry:
            entry["shape"] = draw.choice(
                ([], [0], [1 << 62, 4], [-1], [2] * 60, [1 << 64], *[entry["shape"][::-1]] * 3)
            )
        case 2 if "data_offsets" in entry:
            entry["data_offsets"] = draw.choice(
                ([0, 0], [0, 1 << 62], [-1, 4], [8, 4], [0], entry["data_offsets"][::-1])
            )
        case _:
            header = Raw(json_changed(header, draw))
    text = written(header, draw).encode()
    length = len(text) + draw.choice((0,) * 10 + (1, -1, 8, 1 << 40))
    return max(0, length).to_bytes(8, "little") + text + data[8 + n :]


def png(data: bytes, draw: Random) -> bytes:
    """A chunk is changed, doubled, moved or gone, with a checksum that fits."""
    at, chunks = 8, []
    while at + 12 <= len(data):
        n = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + n]))
        at += 12 + n
    i = draw.randrange(len(chunks))
    kind, its = chunks[i]
    match draw.randrange(6):
        case 0 | 1:
            chunks[i] = kind, draw.choice(BYTES)(its, draw)
        case 2:
            its = zlib.decompress(its) if kind == b"IDAT" else its
            chunks[i] = kind, zlib.compress(draw.choice(BYTES)(its, draw)) if kind == b"IDAT" else its * 2
        case 3:
            del chunks[i]
        case 4:
            chunks.insert(
                i,
                draw.choice(
                    (
                        *chunks,
                        (b"tEXt", b"a\0" + bytes(100)),
                        (b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24))),
                        (b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 22))),
                        (b"acTL", bytes(8)),
                        (b"tRNS", b"\0"),
                        (b"eXIf", draw.randbytes(40)),
                    )
                ),
            )
        case _:
            head = bytearray(chunks[0][1].ljust(13, b"\0"))
            head[:8] = struct.pack(
                ">II", *(draw.choice((0, 1, 7, 8, 8191, 8192, 40_000, 1 << 20, (1 << 31) - 1)) for _ in range(2))
            )
            head[8 + draw.randrange(5)] = draw.choice((0, 1, 2, 3, 4, 8, 16, 255))
            chunks[0] = b"IHDR", bytes(head)
    parts = [
        len(its).to_bytes(4, "big") + kind + its + zlib.crc32(kind + its).to_bytes(4, "big") for kind, its in chunks
    ]
    return data[:8] + b"".join(parts)


def jpeg(data: bytes, draw: Random) -> bytes:
    """The frame's size, its precision or its parts; or the length of a segment."""
    marks = [m.start() for m in re.finditer(rb"\xff[\xc0-\xc4\xda\xdb\xdd\xe0-\xef]", data)]
    at = draw.choice(marks)
    field = draw.choice((2, 4, 5, 7, 9, 10, 11))
    return data[: at + field] + draw.choice(NUMBERS[:12]).to_bytes(8, "big")[-2:] + data[at + field + 2 :]


def idx(data: bytes, draw: Random) -> bytes:
    at = draw.choice((3, 4, 8, 12))
    return data[:at] + draw.choice(NUMBERS[:14]).to_bytes(8, "big")[-4:] + data[at + 4 :]


def gguf(data: bytes, draw: Random) -> bytes:
    """A length, a kind or a count near one of the keys or names."""
    marks = [m.end() for m in re.finditer(rb"(general|llama|tokenizer|blk|token_embd|output)[\w.]+", data[:100_000])]
    at = draw.choice((8, 16, *[max(0, draw.choice(marks) + draw.choice((0, 4, 8, 12, 20, 28, -8))) for _ in range(4)]))
    size = draw.choice((4, 8))
    number = draw.choice((*NUMBERS, *range(13))) & ((1 << 8 * size) - 1)
    return data[:at] + number.to_bytes(size, "little") + data[at + size :]


def ints(width: int, order: str = "little", within: int = 1 << 30) -> Change:
    """A number of so many bytes at a round place, as arrays and plain headers hold them."""

    def change(data: bytes, draw: Random) -> bytes:
        at = draw.randrange(max(1, min(len(data), within) // width)) * width
        number = draw.choice((*NUMBERS, draw.randrange(64))) & ((1 << 8 * width) - 1)
        return data[:at] + number.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]

    return change


def npy_values(data: bytes, draw: Random) -> bytes:
    """The numbers behind a sound header: some are others, or all in another order."""
    start = 10 + int.from_bytes(data[8:10], "little")
    width = draw.choice((4, 8))
    values = [data[i : i + width] for i in range(start, len(data), width)]
    if draw.random() < 0.3:
        draw.shuffle(values)
    else:
        for _ in range(draw.choice((1, 3, 20))):
            values[draw.randrange(len(values))] = draw.choice(
                (
                    *values[:5],
                    bytes(width),
                    b"\xff" * width,
                    struct.pack("<d", -1.0)[-width:],
                    struct.pack("<f", 1e30).rjust(width, b"\0"),
                    struct.pack("<f", float("nan")).rjust(width, b"\0"),
                    draw.randbytes(width),
                    (1 << 40).to_bytes(8, "little")[:width],
                )
            )
    return data[:start] + b"".join(values)
