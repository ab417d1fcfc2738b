"""Changes to any bytes, and to any text: flipped, cut, doubled, swapped; hostile numbers, odd letters, long lines."""

import re
from collections.abc import Callable
from random import Random

Change = Callable[[bytes, Random], bytes]

NUMBERS = (
    0, 1, 2, 3, 7, 127, 128, 255, 256, 65535, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
WORDS = (
    b"-1", b"0", b"1e999", b"-1e999", b"nan", b"NaN", b"inf", b"-inf", b"1e-999", b"99999999999999999999", b"",
    b"9" * 400, b"1" * 5000, b"0x10", b"1_000", b"\xd9\xa3", b"null", b"true", b"'", b'"', b"-0", b"1.5", b"[]",
    b"2147483648", b"4294967296", b"9223372036854775808", b"-9223372036854775809", b"1099511627776",
)  # fmt: skip
ODD = (
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\r", b"\r\n", b"\t",
    b'"', b'""', b"'", b",", b"\\", b"\\ud800", b"\\u0000", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xae", b" ",
    b"\n\n", b"{", b"[", b"}", b"=", b"<", b"\x1b[31m", b"../", b"/etc/passwd", b"\xf0\x9f\x98\x80",
)  # fmt: skip


def flipped(data: bytes, draw: Random) -> bytes:
    if not data:
        return b"\0"
    result = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        result[_place(data, draw)] ^= 1 << draw.randrange(8)
    return bytes(result)


def _overwritten(data: bytes, draw: Random) -> bytes:
    result, at = bytearray(data), _place(data, draw)
    n = draw.choice((1, 2, 4, 16, 100))
    result[at : at + n] = draw.choice((bytes(n), b"\xff" * n, draw.randbytes(n), b"\x7f" * n))
    return bytes(result)


def _number(data: bytes, draw: Random) -> bytes:
    """A field of two, four or eight bytes becomes a hostile number."""
    size = draw.choice((2, 4, 4, 8, 8))
    at = _place(data, draw)
    at -= at % draw.choice((1, 4))
    number = draw.choice((*NUMBERS, len(data), len(data) + 1, draw.getrandbits(8 * size))) & ((1 << 8 * size) - 1)
    return data[:at] + number.to_bytes(size, draw.choice(("little", "big"))) + data[at + size :]


def _nudged(data: bytes, draw: Random) -> bytes:
    """A field of four or eight bytes is one more or one less, or twice as much."""
    size, order = draw.choice((4, 8)), draw.choice(("little", "big"))
    at = _place(data, draw)
    before = int.from_bytes(data[at : at + size], order)  # type: ignore[arg-type]
    after = draw.choice((before + 1, before - 1, 2 * before, before // 2)) % (1 << 8 * size)
    return data[:at] + after.to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


def _cut(data: bytes, draw: Random) -> bytes:
    return data[: draw.choice((_place(data, draw), len(data) - draw.choice((1, 2, 4, 8, 16)), draw.randrange(64)))]


def _without(data: bytes, draw: Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + data[at + draw.choice((1, 4, 16, 256, 4096)) :]


def _doubled(data: bytes, draw: Random) -> bytes:
    at, n = _place(data, draw), draw.choice((1, 8, 64, 1024))
    return data[: at + n] + data[at : at + n] * draw.choice((1, 2, 50)) + data[at + n :]


def _inserted(data: bytes, draw: Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + draw.choice((*ODD, draw.randbytes(4), bytes(64))) + data[at:]


def _extended(data: bytes, draw: Random) -> bytes:
    return data + draw.choice((bytes(1), bytes(4096), draw.randbytes(100), data[:1000], b"\n", b" "))


def _swapped(data: bytes, draw: Random) -> bytes:
    a, b, n = _place(data, draw), _place(data, draw), draw.choice((1, 4, 32, 512))
    result = bytearray(data)
    result[a : a + n], result[b : b + n] = data[b : b + n], data[a : a + n]
    return bytes(result)


def _nearly_nothing(data: bytes, draw: Random) -> bytes:
    return draw.choice(
        (b"", b"\n", b"\0", b" ", b"{}", b"[]", b"null", b"\xef\xbb\xbf", bytes(5000), draw.randbytes(200))
    )


def spliced(data: bytes, other: bytes, draw: Random) -> bytes:
    at, its = _place(data, draw), _place(other, draw)
    return data[:at] + other[its : its + draw.choice((16, 1024, 1 << 20))] + (data[at:] if draw.random() < 0.3 else b"")


def _place(data: bytes, draw: Random) -> int:
    """As often in the head or at the end, where the counts stand, as anywhere."""
    n = max(1, len(data))
    return draw.choice((draw.randrange(n), draw.randrange(min(n, 256)), n - 1 - draw.randrange(min(n, 256))))


def _another_number(data: bytes, draw: Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data))
    one = draw.choice(found)
    return data[: one.start()] + draw.choice(WORDS) + data[one.end() :]


def _odd_line(data: bytes, draw: Random) -> bytes:
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    line = lines[at]
    words = line.split(draw.choice((b" ", b"\t", b",")))
    lines[at] = draw.choice(
        (
            b"",
            line + line,
            line[: len(line) // 2],
            line * 3000,
            b" " + line,
            b"#" + line,
            b" ".join(words * 2),
            b"\t".join(words),
            b"x" * 140_000,
            line + b"\t" * 2000,
            b'"' + line,
            words[0],
            b"[" * 5000,
            line + b"\r",
            b"=".join(words),
            line.upper(),
            bytes(3),
        )
    )
    return b"\n".join(lines)


def _lines_about(data: bytes, draw: Random) -> bytes:
    lines = data.split(b"\n")
    a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(4):
        case 0:
            del lines[a]
        case 1:
            lines.insert(a, lines[b])
        case 2:
            lines[a], lines[b] = lines[b], lines[a]
        case _:
            lines[a:a] = [lines[b]] * 1000
    return b"\n".join(lines)


def _another_word(data: bytes, draw: Random) -> bytes:
    found = list(re.finditer(rb"[^\s,;:=\"]+", data))
    one, other = draw.choice(found), draw.choice(found)
    return data[: one.start()] + draw.choice((other[0], *ODD, *WORDS)) + data[one.end() :]


def _encoded_otherwise(data: bytes, draw: Random) -> bytes:
    text = data.decode("utf-8")
    return draw.choice(
        (
            text.encode("utf-16"),
            text.encode("utf-32"),
            text.encode("utf-8-sig"),
            text.encode("cp1252", "replace"),
            text.replace("\n", "\r").encode(),
            text.replace("\n", "\r\n").encode(),
            text.encode("utf-7"),
        )
    )


BYTES: list[Change] = [
    flipped, flipped, _overwritten, _number, _nudged, _cut, _without, _doubled, _inserted, _extended, _swapped,
    _nearly_nothing,
]  # fmt: skip
TEXT: list[Change] = [_another_number, _odd_line, _lines_about, _another_word, _encoded_otherwise]
