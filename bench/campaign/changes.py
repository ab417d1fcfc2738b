"""What strangers do to a file.

    changed("model.safetensors", data, others, Random(1))      its bytes, changed once or a few times

A change knows the form of a file by its name, so that a reader looks further than its first check. `others` are files
to splice with.
"""

import gzip
import lzma
from collections.abc import Callable, Sequence
from random import Random

from campaign.changed_bytes import BYTES, TEXT, Change, flipped, spliced
from campaign.changed_forms import (
    gguf,
    idx,
    ints,
    jpeg,
    npy,
    npy_values,
    png,
    safetensors,
    zip_bomb,
    zip_directory,
    zip_members,
)
from campaign.changed_json import in_json, in_json_line, in_page

PACKED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
    ".xz": (lzma.decompress, lambda data: lzma.compress(data, preset=0)),
}
FORMS: dict[str, list[Change]] = {
    ".json": [in_json] * 5 + TEXT, ".jsonl": [in_json_line] * 4 + TEXT, ".safetensors": [safetensors],
    ".npy": [npy, npy_values], ".npz": [zip_members, zip_members, zip_directory, zip_bomb],
    ".zip": [zip_members, zip_members, zip_directory, zip_bomb], ".png": [png], ".jpg": [jpeg], ".idx": [idx],
    ".gguf": [gguf], ".bin": [ints(4, within=64)], ".html": [in_page], ".svg": [in_page],
    **dict.fromkeys((".txt", ".csv", ".tsv", ".toml", ".arpa", ".md", ".en", ".de", ".vec"), TEXT),
}  # fmt: skip


def changed(name: str, data: bytes, others: Sequence[bytes], draw: Random) -> bytes:
    """The bytes of a file, changed once or a few times; at least in one."""
    for suffix, (unpack, pack) in PACKED.items():
        if name.endswith(suffix) and draw.random() < 0.7:
            return pack(changed(name.removesuffix(suffix), unpack(data), others, draw))
    forms = next((forms for suffix, forms in FORMS.items() if name.endswith(suffix)), [])
    result = data
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if forms and draw.random() < 0.65:
            change = draw.choice(forms)
            try:
                result = change(result, draw)
                continue
            except Exception:  # an earlier change has spoilt the form
                pass
        result = draw.choice(BYTES)(result, draw) if draw.random() < 0.9 else spliced(result, draw.choice(others), draw)
    return result if result != data else flipped(data, draw)
