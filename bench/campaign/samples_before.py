"""Word vectors and n-gram models."""

import gzip
import json
from pathlib import Path
from random import Random

import numpy as np
from campaign.reader import WORDS, Files, Reader, files_of, only, sentences

# --- what came before -------------------------------------------------------------------------------------------------


def _vector_files(place: Path) -> list[Files]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype("<f4")
    lines = "".join(
        f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in zip(WORDS, numbers, strict=True)
    ).encode()
    head = f"{len(WORDS)} 6\n".encode()
    binary = head + b"".join(
        word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(WORDS, numbers, strict=True)
    )
    np.save(place / "x.npy", numbers)
    np.save(place / "f8.npy", numbers.astype("<f8"))
    np.save(place / "by_column.npy", np.asfortranarray(numbers))
    pq.write_table(pa.table({"word": WORDS}), place / "x.parquet")
    words = "\n".join(WORDS).encode()
    return [
        {"x.txt": lines}, {"x.vec": head + lines}, {"x.bin": binary},
        {"x.vec.gz": gzip.compress(head + lines, mtime=0)},
        *({"x.npy": (place / name).read_bytes(), "words.txt": words} for name in ("x.npy", "f8.npy", "by_column.npy")),
        {"x.npy": (place / "x.npy").read_bytes(), "words.parquet": (place / "x.parquet").read_bytes()},
    ]  # fmt: skip


def _vectors(place: Path) -> Reader:
    from cutaway.checkpoints.word_vectors import is_word_vectors, read_word_vectors

    def read(folder: Path, out: Path) -> None:
        path = next(path for path in sorted(folder.iterdir()) if path.name.startswith("x."))
        is_word_vectors(path)
        words, _ = read_word_vectors(path)
        json.dumps(words, ensure_ascii=False).encode()

    return Reader("vectors", _vector_files(place), read, 1.5)


def _packed_vectors(place: Path) -> Reader:
    from cutaway.before.options import SkipGramOptions
    from cutaway.before.vectors.skip_gram import train_skip_gram
    from cutaway.checkpoints.word_vectors import is_word_vectors, read_word_vectors

    ids = np.random.default_rng(0).integers(0, 20, 400).astype(np.uint32)
    model = train_skip_gram(ids, 21, SkipGramOptions(d=4, epochs=1, min_count=1), end=20)
    model.save(place, [*WORDS[:20], "</s>"])

    def read(folder: Path, out: Path) -> None:
        is_word_vectors(folder)
        read_word_vectors(folder)

    return Reader("folders of vectors", [files_of(place)], read)


def _counted(unit: str, place: Path, classes: bool = False, out: str = "model") -> Path:
    from cutaway.before.ngrams.ngram_folder import write_ngram_folder
    from cutaway.before.ngrams.ngram_of_classes import train_class_ngrams
    from cutaway.before.ngrams.smoothing import train_ngrams
    from cutaway.before.units import read_ids, units_of

    (place / "text.txt").write_text("\n".join(sentences(60, Random(4))))
    cut = units_of(unit)
    text = read_ids(cut, [place / "text.txt"], split="line")
    size = len(cut.names)
    made = (
        train_class_ngrams(text.ids, size, 3, 4, end=cut.end)
        if classes
        else train_ngrams(text.ids, size, 3, end=cut.end)
    )
    write_ngram_folder(made, cut, place / out)
    return place / out


def _asked_of_counts(path: Path) -> None:
    from cutaway.before.ngrams.ngram_folder import read_ngram_folder

    model, cut = read_ngram_folder(path)
    ids = cut.ids("the cat sat on the mat", new=False).astype(np.int64)
    model.log_probabilities(ids)
    model.next_probabilities(ids.tolist())
    cut.join([i for i in model.generate([], seed=0, limit=8) if i != cut.end])
    for one in (model, getattr(model, "model", None)):
        if hasattr(one, "ngrams"):
            for order in range(1, one.order + 1):
                one.ngrams(order, slice(0, 1000))
    json.dumps(list(cut.names), ensure_ascii=False).encode()


def _arpa(place: Path) -> Reader:
    data = _counted("words", place, out="model.arpa").read_bytes()
    samples = [{"x.arpa": data}, {"x.arpa": data}, {"x.arpa.gz": gzip.compress(data, mtime=0)}]
    return Reader("ARPA", samples, lambda folder, out: _asked_of_counts(only(folder)))


def _ngrams(place: Path) -> Reader:
    samples = [
        files_of(_counted(unit, place, classes, out=f"{unit}{classes}"))
        for unit, classes in (
            ("words", False),
            ("words", True),
            ("characters", False),
            ("bytes", False),
            ("books", False),
        )
    ]
    return Reader("n-gram folders", samples, lambda folder, out: _asked_of_counts(folder), 2.0)


MAKERS = [_vectors, _packed_vectors, _arpa, _ngrams]
