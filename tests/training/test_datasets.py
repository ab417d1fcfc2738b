"""From files to batches: nothing is wider than asked, nothing held out is learnt from, bytes are counted right."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.bert_tokenizer import bert_tokenizer
from helpers.near_duplicates import book, printed_otherwise, written
from helpers.toy_recipes import KINDS, WORDS, toy, values, write_files

from cutaway.data.batches import Windows
from cutaway.decoding.single_pass import rows_of
from cutaway.errors import ConfigError, InputError
from cutaway.objectives import IGNORED
from cutaway.training.datasets import prepare
from cutaway.training.datasets.held_out import check_classes
from cutaway.training.datasets.images import mean_and_std
from cutaway.training.datasets.texts import TextFiles
from cutaway.training.datasets.training_data import TrainingData
from cutaway.training.recipe_file import recipe_from
from cutaway.training.tasks.images import augmentation
from cutaway.training.train import train
from cutaway.training.validation import bits


def batches(dataset: TrainingData, source: Any = None) -> list[dict[str, Any]]:
    source = dataset.train if source is None else source
    return [dataset.objective.prepare(source(step), np.random.default_rng(0)) for step in range(source.steps)]


@pytest.mark.parametrize("seq_len", [11, 24])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "images"])
def test_no_row_is_longer_than_seq_len(kind: str, seq_len: int, tmp_path: Path) -> None:
    """A model whose max_len is seq_len reads all that it is given."""
    dataset = prepare(toy(kind, tmp_path, data={"seq_len": seq_len}), None)
    for source in (dataset.train, dataset.valid):
        for batch in batches(dataset, source):
            for name in ("ids", "source"):
                assert name not in batch or batch[name].shape[1] <= seq_len


@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_a_decoder_reads_labelled_rows_within_seq_len_too(kind: str, tmp_path: Path) -> None:
    dataset = prepare(toy(kind, tmp_path, tokenizer={"kind": "word", "vocab_size": None}, data={"seq_len": 12}), None)
    assert all(batch["ids"].shape[1] <= 12 for batch in batches(dataset))


def texts_in(dataset: TrainingData, source: Any) -> set[str]:
    assert dataset.tokenizer is not None
    found = set()
    for step in range(source.steps):
        batch = source(step)
        for row, n in zip(batch["text"], batch["text_length"], strict=True):
            if n:
                found.add(dataset.tokenizer.decode(row[:n].tolist()))
    return found


@pytest.mark.parametrize("held_out", [{"valid_share": 0.1}, {"valid_last": 12, "valid_share": 0.0}])
def test_the_last_lines_are_held_out(held_out: dict[str, Any], tmp_path: Path) -> None:
    write_files(tmp_path)
    lines = [f"line number {i} of the text" for i in range(120)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    dataset = prepare(toy("lines", tmp_path, tokenizer={"kind": "byte"}, data={**held_out, "seq_len": 40}), None)
    assert texts_in(dataset, dataset.train) == set(lines[:-12])
    assert texts_in(dataset, dataset.valid) == set(lines[-12:])


@pytest.mark.parametrize("kind", ["translate", "classify", "images"])
def test_the_last_examples_are_held_out(kind: str, tmp_path: Path) -> None:
    dataset = prepare(toy(kind, tmp_path, data={"valid_share": 0.0, "valid_last": 7}), None)
    assert dataset.valid is not None
    trained, measured = (
        {int(i) for step in range(source.steps) for i in source(step)["example"] if i >= 0}
        for source in (dataset.train, dataset.valid)
    )
    n = {"translate": 80, "classify": 60, "images": 50}[kind]
    assert (trained, measured) == (set(range(n - 7)), set(range(n - 7, n)))
    if kind == "images":
        assert (dataset.valid(0)["label"] == np.arange(n - 7, n) % 4).all()


@pytest.mark.parametrize("kind", ["translate", "classify", "images"])
def test_a_share_is_held_out_from_all_over_the_file(kind: str, tmp_path: Path) -> None:
    """Files are often sorted: the last share of pictures would be one class that training never sees."""
    dataset = prepare(toy(kind, tmp_path, data={"valid_share": 0.4}), None)
    assert dataset.valid is not None
    trained, measured = (
        {int(i) for step in range(source.steps) for i in source(step)["example"] if i >= 0}
        for source in (dataset.train, dataset.valid)
    )
    n = {"translate": 80, "classify": 60, "images": 50}[kind]
    assert trained | measured == set(range(n))
    assert not trained & measured
    assert len(measured) == round(0.4 * n)
    assert min(measured) < 0.3 * n  # and not the last ones


def test_the_last_share_of_a_text_is_held_out(tmp_path: Path) -> None:
    write_files(tmp_path)
    text = " ".join(map(str, range(1000)))
    (tmp_path / "text.txt").write_text(text)
    dataset = prepare(toy("next_token", tmp_path, tokenizer={"kind": "byte"}), None)
    assert isinstance(dataset.train, Windows)
    assert isinstance(dataset.valid, Windows)
    assert dataset.tokenizer is not None
    trained, measured = (
        dataset.tokenizer.decode(source.corpus.ids[:-1].tolist()) for source in (dataset.train, dataset.valid)
    )
    assert trained + measured == text
    assert len(measured) == round(len(text) / 10)


@pytest.mark.parametrize("split", ["file", "line", "blank_line"])
def test_a_new_tokenizer_does_not_see_what_is_held_out(split: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    words = [f"w{i}" for i in range(1000)]  # all lines are equally long, but for the first hundred
    (tmp_path / "text.txt").write_text("\n".join(words))
    tokenizer = prepare(toy("lines", tmp_path, data={"split": split, "valid_share": 0.5}), None).tokenizer
    assert tokenizer is not None
    known = [word for word in words if word in tokenizer]
    assert known == words[: len(known)]
    assert len(known) == 500 if split == "line" else 500 < len(known) < 520


def test_bits_per_byte_of_lines_count_the_bytes_of_those_lines(tmp_path: Path) -> None:
    """Every line has 3 words, their <eos>, and 11 bytes."""
    write_files(tmp_path)
    (tmp_path / "text.txt").write_text("one two six\n" * 100)
    dataset = prepare(toy("lines", tmp_path), None)
    assert dataset.bytes_per_token == pytest.approx(11 / 4)
    found = bits({"loss": np.log(2) * 11 / 4}, dataset)
    assert found == {"bits_per_byte": pytest.approx(1.0), "perplexity": pytest.approx(2 ** (11 / 4))}


def test_bits_per_byte_count_the_bytes_that_are_held_out(tmp_path: Path) -> None:
    """Though all before them is cut into tokens of other lengths."""
    write_files(tmp_path)
    (tmp_path / "text.txt").write_text("one two six\n" * 90 + "one\n" * 10)
    assert prepare(toy("lines", tmp_path), None).bytes_per_token == pytest.approx(3 / 2)  # one <eos>
    (tmp_path / "text.txt").write_text("字" + "a" * 899 + "字" * 100)
    assert prepare(toy("next_token", tmp_path), None).bytes_per_token == pytest.approx(300 / 101)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("next_token", {"valid_last": 5, "valid_share": 0.0}, r"valid_last=5 counts examples"),
        ("next_token", {"valid_share": 1.0}, r"valid_share=1.0 of .* examples .*: none is left to train on"),
        ("lines", {"valid_last": 500}, r"valid_last=500 of 120 .*: none is left to train on"),
        ("classify", {"valid_last": 60}, r"valid_last=60 of 60 .*: none is left to train on"),
        ("translate", {"valid_last": 100}, r"valid_last=100 of 80 .*: none is left to train on"),
        (
            "images",
            {"valid_share": 0.001},
            r"valid_share=0.001 of 50 .*: none is held out for validation; give more",
        ),
        ("next_token", {"train": []}, r"\[data\] has no `train` files"),
        ("translate", {"train": ["pairs.en"]}, r"parallel files come in pairs, and there are 1"),
        (
            "pretrain",
            {"format": "table", "train": ["table.tsv"]},
            r"objective 'pretrain' reads running text, not tables",
        ),
        ("spans", {"format": "table", "train": ["table.tsv"]}, r"objective 'spans' reads running text, not tables"),
    ],
)
def test_what_leaves_nothing_to_learn_from_is_refused(
    kind: str, data: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(toy(kind, tmp_path, data=data), None)


def test_nothing_is_waited_for_without_examples_to_measure_with(tmp_path: Path) -> None:
    recipe = toy("lines", tmp_path, data={"valid_share": 0.0}, evaluate={"patience": 2})
    with pytest.raises(ConfigError, match=r"evaluate.patience=2 needs validation examples: set data.valid"):
        prepare(recipe, None)


def test_rows_that_do_not_divide_into_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"3 rows of a step cannot be divided into train.accumulate=2 parts"):
        prepare(toy("next_token", tmp_path, train={"rows": 3, "accumulate": 2}), None)


def test_a_tokenizer_without_the_token_that_is_needed_is_refused(tmp_path: Path) -> None:
    recipe = values("masked", tmp_path, tokenizer={"kind": "char", "vocab_size": None})
    no_mask = prepare(recipe_from(values("next_token", tmp_path)), None).tokenizer
    del recipe["tokenizer"]
    with pytest.raises(ConfigError, match="a token that hides a word"):
        prepare(recipe_from(recipe), no_mask)


def test_rows_of_a_table_begin_and_end(tmp_path: Path) -> None:
    """Language modelling of a table's column: each row is a sequence with <sos> and <eos>."""
    recipe = values("lines", tmp_path)
    recipe["data"] = {"root": str(tmp_path), "train": ["table.tsv"], "format": "table", "seq_len": 24}
    dataset = prepare(recipe_from(recipe), None)
    tokenizer = dataset.tokenizer
    assert tokenizer is not None
    for batch in batches(dataset):
        for ids, targets in zip(batch["ids"], batch["targets"], strict=True):
            counted = targets[targets != IGNORED]
            assert not len(counted) or (ids[0], counted[-1]) == (tokenizer.bos_id, tokenizer.eos_id)


# --- borders of documents ---------------------------------------------------------------------------------------------


def numbered(folder: Path, between: str) -> None:
    """Documents of one word each, which comes 1 … 60 times."""
    write_files(folder)
    (folder / "text.txt").write_text(between.join(" ".join([f"w{i}"] * (7 * i % 60 + 1)) for i in range(80)))


@pytest.mark.parametrize(("split", "between"), [("line", "\n"), ("blank_line", "\n\n")])
def test_spans_are_of_one_document_and_end_once(split: str, between: str, tmp_path: Path) -> None:
    numbered(tmp_path, between)
    dataset = prepare(toy("spans", tmp_path, data={"split": split, "seq_len": 20, "valid_share": 0.0}), None)
    tokenizer = dataset.tokenizer
    assert tokenizer is not None
    n = 0
    for batch in batches(dataset):
        for source, real, targets in zip(batch["source"], batch["source_real"], batch["targets"], strict=True):
            sides = source[real].tolist(), targets[targets != IGNORED].tolist()
            for side in sides:
                assert not side or (side.count(tokenizer.eos_id), side[-1]) == (1, tokenizer.eos_id)
            words = [id for side in sides for id in side if tokenizer.token(id).startswith("w")]
            assert len(set(words)) <= 1
            n += len(words)
    assert n == sum(7 * i % 60 + 1 for i in range(80))  # nothing is lost


@pytest.mark.parametrize("borders", [True, False])
def test_documents_of_a_masked_row_are_hidden_from_each_other_where_borders_count(
    borders: bool, tmp_path: Path
) -> None:
    numbered(tmp_path, "\n\n")
    data = {"split": "blank_line", "borders": borders, "seq_len": 40, "valid_share": 0.0}
    tokenizer = {"kind": "word", "vocab_size": None}
    dataset = prepare(toy("masked", tmp_path, data=data, tokenizer=tokenizer), None)
    known = dataset.tokenizer
    assert known is not None
    said = [batch for batch in batches(dataset) if "documents" in batch]
    assert bool(said) == borders
    for batch in said:
        assert batch["ids"].shape[1] == 40
        for ids, documents, at, targets in zip(
            batch["ids"], batch["documents"], batch["at"], batch["targets"], strict=True
        ):
            ids[at[targets != IGNORED]] = targets[targets != IGNORED]
            for i in np.unique(documents):
                assert len({id for id in ids[documents == i].tolist() if known.token(id).startswith("w")}) <= 1


# --- what is too long -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", ["wordpiece", "word"])  # with [CLS] and [SEP], and with <eos> alone
@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_training_reads_a_row_as_an_evaluation_does_and_says_how_many_are_cut(
    kind: str, tokenizer: str, tmp_path: Path
) -> None:
    changes = {"tokenizer": {"kind": tokenizer, "vocab_size": None if tokenizer == "word" else 120}}
    dataset = prepare(toy(kind, tmp_path, data={"seq_len": 12, "valid_share": 0.0, "valid_last": 20}, **changes), None)
    assert dataset.tokenizer is not None
    table = [line.split("\t")[:2] for line in (tmp_path / "table.tsv").read_text().splitlines()[1:]]
    texts = [(a, b) if kind == "pair" else a for a, b in table]
    rows = rows_of(dataset.tokenizer, texts, 12, as_trained=True)
    notes = []
    for name, source, part in (("training", dataset.train, rows[:40]), ("validation", dataset.valid, rows[40:])):
        read = {tuple(ids[real].tolist()) for batch in batches(dataset, source)
                for ids, real in zip(batch["ids"], batch["real"], strict=True) if real.any()}  # fmt: skip
        assert read == {tuple(row.ids) for row in part}
        if n_cut := sum(row.cut for row in part):
            notes.append(f"{n_cut} {name} rows are longer than seq_len=12 and are cut, of a pair the longer text first")
    assert dataset.notes == notes
    assert kind == "classify" or len(notes) == 2


def test_only_labels_belong_to_pairs_of_texts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.second='second': objective 'tag' reads one text, not pairs"):
        prepare(toy("tag", tmp_path, data={"second": "second"}), None)


# --- what is held out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held_out", [{"valid_share": 0.3}, {"valid_share": 0.0, "valid_last": 9}])
@pytest.mark.parametrize("kind", ["classify", "pair", "translate"])
def test_a_tokenizer_sees_nothing_that_is_held_out(kind: str, held_out: dict[str, Any], tmp_path: Path) -> None:
    """Every row has a sign of its own; some have a blank text, and some one that WordPiece has no token for."""
    write_files(tmp_path)
    own = [chr(0x4E00 + i) for i in range(30)]
    first = [f"{sign} and" for sign in own]
    first[3] = first[12] = " "
    if kind != "translate":
        first[5] = first[14] = first[23] = "\u200b"
    second = [f"{chr(0x5E00 + i)} or" for i in range(30)]
    lines = [f"{a}\t{b}\t{'xy'[i % 2]}" for i, (a, b) in enumerate(zip(first, second, strict=True))]
    (tmp_path / "table.tsv").write_text("text\tsecond\tlabel\n" + "\n".join(lines) + "\n")
    (tmp_path / "pairs.en").write_text("\n".join(first) + "\n")
    (tmp_path / "pairs.de").write_text("\n".join(second) + "\n")
    dataset = prepare(toy(kind, tmp_path, data=held_out), None)
    tokenizer = dataset.tokenizer
    assert tokenizer is not None
    known = {tokenizer.id(sign) for sign in own if sign in tokenizer}
    name = {"classify": "text", "pair": "first", "translate": "source"}[kind]
    for source, wanted in ((dataset.train, known), (dataset.valid, {tokenizer.unk_id})):
        assert source is not None
        rows = [source(step) for step in range(source.steps)]
        assert {int(id) for batch in rows for id in batch[name][batch["example"] >= 0, 0]} == wanted
    assert dataset.train.n_examples == len(known) > 10


# --- translation ------------------------------------------------------------------------------------------------------


def test_pairs_are_read_in_every_wanted_direction_with_the_tag_of_the_target(tmp_path: Path) -> None:
    write_files(tmp_path)
    for side in ("en", "de"):
        (tmp_path / f"pairs.{side}").write_text("".join(f"{side}{i} {side}x\n" for i in range(40)))
    dataset = prepare(toy("translate", tmp_path, data={"directions": ["en-de", "de-en"]}), None)
    tokenizer = dataset.tokenizer
    assert tokenizer is not None
    seen = set()
    for step in range(dataset.train.steps):
        batch = dataset.train(step)
        for i in np.flatnonzero(batch["example"] >= 0):
            source, target = (
                tokenizer.decode(batch[name][i, : batch[f"{name}_length"][i]].tolist()) for name in ("source", "target")
            )
            to = target[:2]
            assert {source[:2], to} == {"en", "de"}
            assert source[2:].split()[0] == target[2:].split()[0]
            assert batch["tag"][i] == tokenizer.tag_id(to)
            seen.add((source, to))
    assert len(seen) == 2 * 36
    assert {tag for _, tag in dataset.sample_sources} == {tokenizer.tag_id("en"), tokenizer.tag_id("de")}


@pytest.mark.parametrize(
    ("directions", "said"),
    [
        (["en"], r"data.directions=\['en'\]: write each as en-de"),
        (["en-de", "-en"], r"data.directions=\['en-de', '-en'\]: write each as en-de"),
        (["en-fr"], r"parallel files have no side 'fr': data.header=\['en', 'de'\]"),
    ],
)
def test_directions_that_lead_nowhere_are_refused(directions: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        prepare(toy("translate", tmp_path, data={"directions": directions}), None)


def test_a_language_may_have_a_region(tmp_path: Path) -> None:
    recipe = toy("translate", tmp_path, data={"header": ["en", "pt-BR"], "directions": ["en-pt-BR"]})
    tokenizer = prepare(recipe, None).tokenizer
    assert tokenizer is not None
    assert tokenizer.tag_id("pt-BR") in tokenizer.special_ids().values()


def test_pairs_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset = prepare(toy("translate", tmp_path, data={"seq_len": 8, "valid_last": 20}), None)
    sides = [(tmp_path / f"pairs.{side}").read_text().splitlines() for side in ("en", "de")]
    too_long = [max(len(a.split()), len(b.split())) > 7 for a, b in zip(*sides, strict=True)]
    trained, measured = sum(too_long[:60]), sum(too_long[60:])
    assert dataset.notes == [
        f"{trained} training pairs are longer than seq_len=8 and were left out",
        f"{measured} validation pairs are longer than seq_len=8 and were left out",
    ]
    assert dataset.valid is not None
    assert (dataset.train.n_examples, dataset.valid.n_examples) == (60 - trained, 20 - measured)
    with pytest.raises(InputError, match="every pair is longer than seq_len=1"):
        prepare(toy("translate", tmp_path, data={"seq_len": 1}), None)


# --- cut in many ways -------------------------------------------------------------------------------------------------

DROPOUT = {"kind": "bpe", "vocab_size": 300, "dropout": 0.3, "cuts": 5}


def rows_in(source: Any) -> list[tuple[int, ...]]:
    """Every pair of an epoch, as it is cut: tag, source, 0, target."""
    found = []
    for step in range(source.steps):
        batch = source(step)
        for i in np.flatnonzero(batch["example"] >= 0):
            a, b = (batch[name][i, : batch[f"{name}_length"][i]].tolist() for name in ("source", "target"))
            found.append((int(batch["tag"][i]), *a, 0, *b))
    return found


@pytest.mark.parametrize("held_out", [{"valid_share": 0.3}, {"valid_share": 0.0, "valid_last": 24}])
def test_what_is_held_out_is_held_out_in_all_its_cuts_and_cut_as_always(
    held_out: dict[str, Any], tmp_path: Path
) -> None:
    write_files(tmp_path)
    for side in ("en", "de"):
        words = (f"{side} number{i} {'' if i % 9 else ' ' * i}" for i in range(80))
        (tmp_path / f"pairs.{side}").write_text("".join(f"{word}\n" if i % 7 else "\n" for i, word in enumerate(words)))
    data = {"directions": ["en-de", "de-en"], "seq_len": 100, **held_out}
    plain, cut = (
        prepare(toy("translate", tmp_path, data=data, tokenizer=changes), None)
        for changes in (DROPOUT | {"dropout": 0.0}, DROPOUT)
    )
    tokenizer = plain.tokenizer
    assert tokenizer is not None
    assert rows_in(plain.valid) == rows_in(cut.valid)
    assert plain.sample_sources == cut.sample_sources
    texts = [Counter((row[0], tokenizer.decode(row[1:])) for row in rows_in(m.train)) for m in (plain, cut)]
    assert texts[1] == Counter({text: 5 * n for text, n in texts[0].items()})
    assert not set(texts[1]) & {(row[0], tokenizer.decode(row[1:])) for row in rows_in(cut.valid)}
    assert len(set(rows_in(cut.train))) > 0.9 * cut.train.n_examples
    assert cut.notes == [f"each of {plain.train.n_examples // 2} training pairs is segmented in 5 ways", *plain.notes]


def test_cuts_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset = prepare(toy("translate", tmp_path, data={"seq_len": 20}, tokenizer=DROPOUT), None)
    lost = 72 * 5 - dataset.train.n_examples
    assert lost > 0
    assert f"{lost} cuts of training pairs are longer than seq_len=20 and were left out" in dataset.notes


def test_examples_to_measure_with_from_a_file_of_their_own_are_cut_as_always(tmp_path: Path) -> None:
    data = {"valid": ["pairs.en", "pairs.de"], "valid_share": 0.0, "seq_len": 120}
    dataset = prepare(toy("translate", tmp_path, data=data, tokenizer=DROPOUT), None)
    assert dataset.valid is not None
    assert (dataset.train.n_examples, dataset.valid.n_examples) == (400, 80)


def test_another_seed_is_cut_in_other_ways_and_the_fingerprint_says_it(tmp_path: Path) -> None:
    found = [
        prepare(toy("translate", tmp_path, seed=seed, data={"valid_share": 0.0}, tokenizer=DROPOUT | changes), None)  # type: ignore[arg-type]
        for seed, changes in ((1, {}), (2, {}), (1, {"dropout": 0.2}), (1, {"cuts": 4}))
    ]
    assert len({dataset.fingerprint for dataset in found}) == 4
    assert len({frozenset(rows_in(dataset.train)) for dataset in found}) == 4


def test_a_tokenizer_without_merges_has_none_to_drop(tmp_path: Path) -> None:
    words = prepare(toy("translate", tmp_path), None).tokenizer
    recipe = toy("translate", tmp_path, tokenizer={"kind": None, "dropout": 0.1})
    with pytest.raises(InputError, match="only BPE has merges to drop; this is a WordLevel"):
        prepare(recipe, words)


def test_samples_fit_into_the_model(tmp_path: Path) -> None:
    """A source that the model cannot read is not shown, and a prompt that is too long is cut: no run ends for it."""
    events: list[dict[str, Any]] = []
    data = {"seq_len": 8, "valid_share": 0.4}
    recipe = toy("translate", tmp_path, model={"max_len": 8}, data=data, evaluate={"samples": 3})
    train(recipe, tmp_path / "out", listeners=[events.append])
    shown = [event["samples"] for event in events if event["event"] == "evaluate"][-1]
    assert shown
    assert all(" → " in sample and len(sample.split(" → ")[0].split()) <= 7 for sample in shown)
    prompt = "the cat sat on the mat " * 9
    train(toy("next_token", tmp_path, evaluate={"prompt": prompt}), tmp_path / "two", listeners=[events.append])
    (written,) = [event["samples"] for event in events if event["event"] == "evaluate"][-1]
    assert written.startswith(prompt[-24:])


def test_classes_that_were_never_shown_are_not_measured_with() -> None:
    """A file that is sorted by class (JPEG-CIFAR is) ends in one class: its last share cannot choose anything."""
    labels, every = np.repeat([0, 1, 2], 10), np.arange(30)
    check_classes(labels, every[::2], every[1::2])
    check_classes(labels, every, every[20:])
    with pytest.raises(ConfigError, match=r"class 2 occurs in the held-out examples.*data.valid_share"):
        check_classes(labels, every[:20], every[20:])


# --- pictures ---------------------------------------------------------------------------------------------------------


def picture_file(folder: Path, name: str, *shape: int) -> str:
    folder.mkdir(exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (20, *shape), dtype=np.uint8)
    np.savez(folder / name, images=images, labels=np.arange(20) % 4)
    return name


def test_pictures_that_the_model_cannot_read_are_refused_before_the_first_step(tmp_path: Path) -> None:
    square, other, wide = (
        picture_file(tmp_path, f"{height}x{width}.npz", height, width) for height, width in ((8, 8), (4, 4), (8, 12))
    )
    for data, said in (
        ({"train": [wide]}, r"the images are 8 × 12 pixels of 1 channel; --set data.image_size=64"),
        ({"train": [square], "valid": [other]}, r"validation images are 4 × 4 pixels .*, training images 8 × 8"),
        ({"train": [square, square], "image_size": 4}, r"data.image_size=4: images of idx files are not resized"),
        ({"train": [square], "image_size": 4}, r"holds images as arrays: size and channels are for encoded images"),
    ):
        with pytest.raises((ConfigError, InputError), match=said):
            prepare(toy("images", tmp_path, data=data), None)


def test_the_mean_and_spread_of_pictures_are_those_of_their_numbers() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 3, 5, 5), dtype=np.uint8) // np.uint8(2)
    pixels[:, 2] = 7
    examples = np.arange(0, 30, 2)
    numbers = pixels[examples].astype(np.float64) / 255
    mean, std = mean_and_std(pixels, examples)
    assert mean == pytest.approx(numbers.mean(axis=(0, 2, 3)), abs=6e-5)
    assert std == pytest.approx([*numbers.std(axis=(0, 2, 3))[:2], 0.01], abs=6e-5)


def test_changes_of_pictures_are_strict() -> None:
    assert augmentation({"turn": 10, "mirror": True}).turn == 10.0
    with pytest.raises(ConfigError, match=r"unknown key 'mirrow' in \[objective\] of images; .*mean 'mirror'\?"):
        augmentation({"mirrow": True})
    for name, wrong in {"mirror": "yes", "shift": 1.5, "turn": "a", "erase": True}.items():
        with pytest.raises(ConfigError, match=rf"objective.{name}="):
            augmentation({name: wrong})


@pytest.mark.parametrize("kind", ["classify", "regress", "tag", "images"])
def test_labels_that_are_all_the_same_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "table.tsv").write_text("text\tlabel\tscore\ttags\n" + "a cat\tgood\t-100\tx x\n" * 20)
    np.savez(tmp_path / "pictures.npz", images=np.zeros((20, 8, 8), np.uint8), labels=np.zeros(20, np.int64))
    only = {"classify": "good", "regress": "-100.0", "tag": "x", "images": "0"}[kind]
    file = "pictures.npz" if kind == "images" else "of table.tsv"
    with pytest.raises(ConfigError, match=rf"all labels in .*{file} are {only}: at least two different ones"):
        prepare(toy(kind, tmp_path), None)


def test_a_number_that_is_also_a_mark_is_a_number(tmp_path: Path) -> None:
    """−100 stands where a word bears no tag; of numbers it is one like another."""
    write_files(tmp_path)
    rows = "a cat\t-100\n" * 10 + "a dog\t5\n" * 10
    (tmp_path / "table.tsv").write_text("text\tscore\n" + rows)
    assert prepare(toy("regress", tmp_path), None).train.n_examples == 16


def test_a_column_that_is_not_there_is_named_before_a_tokenizer_is_trained(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "valid.tsv").write_text("text\tlable\na cat\ta\n")
    for data in ({"label": "lable"}, {"valid": ["valid.tsv"], "valid_share": 0.0}):
        said: list[str] = []
        with pytest.raises(InputError, match=r"no column 'lable'|valid.tsv: no column 'label'; there are text, lable"):
            prepare(toy("classify", tmp_path, data=data), None, said.append)
        assert said == []


@pytest.mark.parametrize("apart", [True, False])
def test_a_book_that_is_in_the_validation_text_is_not_learnt(tmp_path: Path, apart: bool) -> None:
    written(tmp_path / "train.txt", book(0), printed_otherwise(book(1)), book(2))
    written(tmp_path / "valid.txt", book(1))
    files = {"root": str(tmp_path), "train": ["train.txt"], "valid": ["valid.txt"], "valid_share": 0.0}
    recipe = toy("next_token", tmp_path, data={**files, "split": "form_feed", "apart": apart})
    dataset = prepare(recipe, None)
    assert isinstance(dataset.train, Windows)
    assert len(dataset.train.corpus) == (2 if apart else 3)
    assert bool(dataset.notes) == apart
    first = printed_otherwise(book(1))[:40]
    assert (first in "".join(TextFiles(recipe, print).training_texts())) != apart


@pytest.mark.parametrize("held_out", [{"valid_last": 20}, {"valid_share": 0.4}])
def test_mean_and_spread_of_pictures_are_those_of_the_pictures_that_are_learnt(
    held_out: dict[str, Any], tmp_path: Path
) -> None:
    """What is held out is not even looked at."""
    write_files(tmp_path)
    kept = prepare(toy("images", tmp_path, data={**held_out}), None).train.examples
    pixels = np.full((50, 8, 8), 255, dtype=np.uint8)
    pixels[kept] = np.random.default_rng(1).integers(0, 100, (len(kept), 8, 8))
    np.savez(tmp_path / "pictures.npz", images=pixels, labels=np.arange(50) % 4)
    dataset = prepare(toy("images", tmp_path, data={**held_out}), None)
    assert dataset.train.examples.tolist() == kept.tolist()
    numbers = pixels[kept] / 255
    assert dataset.model_settings["pixel_mean"] == pytest.approx([numbers.mean()], abs=1e-4)
    assert dataset.model_settings["pixel_std"] == pytest.approx([numbers.std()], abs=1e-4)
    assert list(dataset.objective.mean) == dataset.model_settings["pixel_mean"]
    assert list(dataset.objective.std) == dataset.model_settings["pixel_std"]


@pytest.mark.parametrize("kind", ["masked", "pretrain", "spans", "classify"])
def test_what_a_recipe_says_of_its_objective_reaches_it(kind: str, tmp_path: Path) -> None:
    auxiliary = {"auxiliary": 0.5} if kind == "classify" else {}

    def made(**asked: Any) -> Any:
        return prepare(toy(kind, tmp_path, objective={"kind": kind, **auxiliary, **asked}), None).objective

    for share in (0.15, 0.3):
        objective = made(mask_share=share)
        assert (objective.share if kind == "spans" else objective.hiding.share) == share
    if kind != "spans":
        assert made(whole_words=False).hiding.continues is None
        assert made(whole_words=True).hiding.continues is not None
    if kind == "classify":
        assert (made().smoothing, made(smoothing=0.2).smoothing) == (0.0, 0.2)
        assert made().auxiliary == 0.5


def test_what_a_recipe_says_of_translating_reaches_it(tmp_path: Path) -> None:
    for asked in ({"smoothing": 0.1, "agree": 0.0}, {"smoothing": 0.3, "agree": 2.0}):
        objective = prepare(toy("translate", tmp_path, objective={"kind": "translate", **asked}), None).objective
        assert (objective.smoothing, objective.agree) == (asked["smoothing"], asked["agree"])


def test_special_tokens_take_room_whatever_their_numbers(tmp_path: Path) -> None:
    found = []
    for first in ("[SEP]", "[CLS]", "[UNK]"):
        folder = tmp_path / first
        bert_tokenizer(list(dict.fromkeys([first, "[UNK]", *WORDS]))).save(folder)
        dataset = prepare(toy("pair", tmp_path, tokenizer={"file": str(folder)}), None)
        assert dataset.tokenizer is not None
        assert dataset.tokenizer.id(first) == 0
        found.append(dataset.train.extra)  # type: ignore[attr-defined]
    assert found == [3, 3, 3]
