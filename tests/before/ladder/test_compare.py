"""The ladder: the same text, the same held-out bytes, and numbers that can be computed again in another way."""

import json
import shutil
from itertools import count, pairwise
from math import log2, nan
from pathlib import Path

import numpy as np
import pytest

from cutaway.before.ladder.compare import compare
from cutaway.before.ladder.rungs import NAMES, Counting
from cutaway.before.ladder.split_text import read_parts, refuse_marks, tokenised
from cutaway.before.ladder.table import hurried
from cutaway.before.ladder.train_network import (
    NETWORKS,
    SPARE,
    TRIED,
    Network,
    network_recipe,
    steps_for,
    train_network,
)
from cutaway.before.ngrams.ngram_folder import read_ngram_folder
from cutaway.checkpoints import load
from cutaway.errors import CheckpointError, InputError
from cutaway.evaluation.perplexity import surprisal
from cutaway.files import read_json, write_json

TINY = ("model.d_model=16", "train.tokens=32", "data.seq_len=16", "train.threads=1")
COUNTED = [name for name in NAMES if name not in NETWORKS]
TEXT = "\n".join(
    f"{who} said that {whom} saw the {thing} number {n} in Rome, and the {thing} was {how}."
    for n, (who, whom, thing, how) in enumerate(
        (who, whom, thing, how)
        for who in ("Ann", "Bob", "Émile")
        for whom in ("Carl", "Dora")
        for thing in ("ship", "house", "red dog")
        for how in ("old", "new")
    )
)


def written(folder, text, name="text.txt"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    """All rungs on a small text, four steps for each network."""
    folder = tmp_path_factory.mktemp("ladder")
    files = [written(folder, TEXT), written(folder, TEXT[::-1], "other.txt")]
    return compare(files, folder / "out", steps=4, changes=TINY), folder / "out"


@pytest.fixture(scope="module")
def models(ladder):
    """Each rung, as it was left on the disk."""
    found, out = ladder
    counted = {name: read_ngram_folder(out / "models" / name)[0] for name in COUNTED}
    return counted | {name: Network(load(out / "models" / name), found.text.end, 16) for name in NETWORKS}


@pytest.mark.parametrize("name", NAMES)
def test_what_may_come_next_sums_to_1_and_is_what_is_scored(name, ladder, models):
    found, _ = ladder
    ids, model = found.text.held_out[0][:12], models[name]
    scores = model.log_probabilities(ids)
    for place in range(1, len(ids)):
        p = model.next_probabilities(ids[:place])
        assert p.sum() == pytest.approx(1, abs=1e-6)
        assert scores[place] == pytest.approx(np.log(p[ids[place]]), abs=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_bits_per_byte_are_those_of_another_reckoning(name, ladder, models):
    found, _ = ladder
    n_bytes, bits = 0, 0.0
    for ids, text in zip(found.text.held_out, found.parts.held_out, strict=True):
        n_bytes += len(text.encode()) - 1  # tokens are bytes here, and nobody is asked for the first
        if name in NETWORKS:
            bits += surprisal(models[name].model, ids, context=16).total / np.log(2)
        else:
            told = (models[name].next_probabilities(ids[:i])[ids[i]] for i in range(1, len(ids)))
            bits -= sum(map(log2, told))
    rung = found.rungs[NAMES.index(name)]
    assert rung.name == name
    assert rung.bits_per_byte == pytest.approx(bits / n_bytes, rel=1e-6)


def test_all_rungs_are_scored_on_the_same_bytes(ladder):
    found, _ = ladder
    assert {len(found.scores[name]) for name in NAMES} == {sum(len(ids) - 1 for ids in found.text.held_out)}
    for ids, text in zip(found.text.held_out, found.parts.held_out, strict=True):
        assert found.text.tokenizer.decode(ids.tolist()) == text
        assert found.text.lengths(ids).sum() == len(text.encode())
    assert found.text.n_bytes == sum(len(text.encode()) - 1 for text in found.parts.held_out)


def test_what_is_held_out_is_not_learnt_from(tmp_path):
    text = TEXT[:-200].replace("w", "v") + " www"
    path = written(tmp_path, text)
    parts = read_parts([path])
    assert "".join((*parts.train, *parts.valid, *parts.held_out)) == text
    assert 0.08 < len(parts.held_out[0]) / len(text) < 0.12
    found = tokenised(parts, tmp_path / "text")
    w = found.tokenizer.encode("w", special=False)[0]
    assert w in found.held_out[0]
    assert w not in found.train
    learnt = found.tokenizer.decode([id for id in found.train.tolist() if id != found.end])
    assert learnt == parts.train[0]
    p = Counting(found).model("order-0", tmp_path / "order-0", lambda done: None)[0].next_probabilities([])
    assert p[w] == p[found.tokenizer.encode("Q", special=False)[0]]  # as likely as what stands nowhere
    recipe = network_recipe("lstm", found, 2)
    read = [Path(name).read_text(encoding="utf-8") for name in (*recipe.data.train, *recipe.data.valid)]
    assert read == [parts.train[0], parts.valid[0]]
    assert not recipe.data.valid_share


@pytest.fixture(scope="module")
def markov(tmp_path_factory):
    """A text whose letters depend on the one before; and the true ln p of each of its letters."""
    random, letters = np.random.default_rng(1), "abc "
    rows = random.dirichlet(np.full(4, 0.3), 4)
    text = [0]
    for _ in range(40_000):
        text.append(int(random.choice(4, p=rows[text[-1]])))
    truth = np.log2([rows[a, b] for a, b in pairwise(text)])
    folder = tmp_path_factory.mktemp("markov")
    path = written(folder, "".join(letters[i] for i in text))
    return tokenised(read_parts([path]), folder / "text"), truth


def test_a_markov_source_is_learnt_and_never_beaten(markov, tmp_path):
    text, truth = markov
    entropy = -truth[-text.n_bytes :].mean()
    counting = Counting(text)
    bits = {}
    for name in COUNTED:
        model, _ = counting.model(name, tmp_path / name, lambda done: None)
        bits[name] = -model.log_probabilities(text.held_out[0])[1:].mean() / np.log(2)
    assert min(bits.values()) > entropy - 0.005
    assert bits["order-0"] > entropy + 0.2
    for order in (1, 2, 3):
        assert bits[f"order-{order}"] < entropy + 0.02
    assert bits["order-5"] < entropy + 0.1


def test_a_network_beats_no_source_either(markov, tmp_path):
    text, truth = markov
    changes = ("model.d_model=32", "train.tokens=256", "data.seq_len=32", "optimizer.rate=2e-2", "train.threads=1")
    network, *_ = train_network("lstm", text, tmp_path / "lstm", steps=100, changes=changes)
    ids = text.held_out[0][:600]
    bits = -network.log_probabilities(ids)[1:].mean() / np.log(2)
    entropy = -truth[-text.n_bytes :][:599].mean()
    assert entropy - 0.03 < bits < entropy + 0.3


@pytest.mark.parametrize("which", ["words", "markov"])
def test_to_look_further_back_is_never_worse_on_the_training_text(which, ladder, markov, tmp_path):
    text = ladder[0].text if which == "words" else markov[0]
    counting = Counting(text)
    told = []
    for name in COUNTED[:-1]:
        model, _ = counting.model(name, tmp_path / name, lambda done: None)
        told.append(model.log_probabilities(np.asarray(text.train)).mean())
    assert all(more >= less - 1e-9 for less, more in pairwise(told))


# --- time ---------------------------------------------------------------------------------------------------------


class Clock:
    """A second passes each time that somebody looks, or as many as it is told."""

    def __init__(self, *seconds):
        self.now, self.looks, self.seconds = 0.0, 0, seconds or (1.0,)

    def __call__(self):
        self.now += self.seconds[min(self.looks, len(self.seconds) - 1)]
        self.looks += 1
        return self.now


def test_steps_are_planned_to_fit(ladder):
    planned = steps_for("transformer", ladder[0].text, 100.0, Clock(), TINY)
    assert planned == int(SPARE * (100 - TRIED - 1))


def test_a_run_that_grows_slow_stops_when_its_time_is_over(ladder, tmp_path):
    clock, seen = Clock(1.0, 1.0, 1.0, 10.0), []
    asked = {"steps": 50, "seconds": 30.0, "clock": clock, "changes": TINY, "progress": seen.append}
    network, flops, steps = train_network("transformer", ladder[0].text, tmp_path / "late", **asked)
    assert len(seen) == steps == 5  # 1, 2, 12, 22 and 32 seconds after its beginning
    assert flops > 0
    assert network.next_probabilities([5]).sum() == pytest.approx(1)
    again = Network(load(tmp_path / "late"), ladder[0].text.end, 16)
    assert np.array_equal(again.next_probabilities([5]), network.next_probabilities([5]))


def test_all_rungs_together_keep_the_time(tmp_path):
    clock = Clock()
    found = compare([written(tmp_path, TEXT)], tmp_path / "out", minutes=2.0, clock=clock, changes=TINY)
    assert [rung.name for rung in found.rungs] == list(NAMES)
    assert 80 < clock.now < 120
    lstm, transformer = (rung.seconds for rung in found.rungs[-2:])
    assert lstm == pytest.approx(transformer, rel=0.25)


# --- stopping and going on ----------------------------------------------------------------------------------------


def timeless(found):
    return [{**rung.to_dict(), "seconds": 0} for rung in found.rungs], found.where, found.gains


@pytest.mark.parametrize(("where", "kept"), [("classes", 6), ("transformer", 8)])
def test_resumed_it_gives_the_same_table(where, kept, ladder, tmp_path):
    whole, out = ladder
    files, asked = [out.parent / "text.txt", out.parent / "other.txt"], {"steps": 4, "changes": TINY}
    told = count()

    def stop(done, what):
        if what == where and (what not in NETWORKS or next(told) == 2):  # a network: in the middle of its run
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(files, tmp_path / "out", progress=stop, **asked)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "scores").iterdir()}
    assert len(before) == kept
    found = compare(files, tmp_path / "out", resume=True, **asked)
    assert timeless(found) == timeless(whole)
    assert all(p.stat().st_mtime_ns == when for p, when in before.items())  # what was finished is not done again


def test_a_resumed_network_keeps_its_steps_and_the_time_that_it_took(tmp_path, monkeypatch):
    files, out, told, given = [written(tmp_path, TEXT)], tmp_path / "out", count(), {}

    def stop(done, what):
        if what == "lstm" and next(told) == 10:
            raise KeyboardInterrupt

    def trained(name, text, folder, **asked):
        given[name] = asked
        return train_network(name, text, folder, **asked)

    with pytest.raises(KeyboardInterrupt):
        compare(files, out, minutes=2.0, changes=TINY, clock=Clock(), progress=stop)
    planned = read_json(out / "compare.json")["settings"]["steps"]["lstm"]
    assert TRIED < planned < 60
    log = out / "models" / "lstm" / "run" / "log.jsonl"
    events = [json.loads(line) | {"seconds": 60.0} for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    monkeypatch.setattr("cutaway.before.ladder.compare.train_network", trained)
    found = compare(files, out, minutes=2.0, changes=TINY, clock=Clock(), resume=True)
    counted = sum(rung.seconds for rung in found.rungs if rung.name not in NETWORKS)
    lstm, transformer = (rung.seconds for rung in found.rungs[-2:])
    assert given["lstm"]["steps"] == planned
    assert given["lstm"]["seconds"] <= 0  # its half of the time is over, so it stops as it is
    assert 60 < lstm < 70
    assert given["transformer"]["seconds"] <= 120 - counted - lstm
    assert counted + lstm + transformer < 125


def test_another_text_or_setting_does_not_go_on(ladder, tmp_path):
    _, out = ladder
    path = written(tmp_path, TEXT + " more of it")
    with pytest.raises(CheckpointError, match="started with another text"):
        compare([path], out, resume=True, steps=4, changes=TINY)
    files = [out.parent / "text.txt", out.parent / "other.txt"]
    with pytest.raises(CheckpointError, match="started with another steps"):
        compare(files, out, resume=True, steps=3, changes=TINY)
    with pytest.raises(InputError, match="holds a comparison"):
        compare(files, out, steps=4, changes=TINY)
    begun = read_json(out / "compare.json")
    write_json(out / "compare.json", begun | {"settings": begun["settings"] | {"asked_steps": None, "minutes": 2.0}})
    with pytest.raises(CheckpointError, match=r"started with another minutes \(2\.0, now 3\.0\)"):
        compare(files, out, resume=True, minutes=3.0, changes=TINY)
    write_json(out / "compare.json", begun)


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", "order-6"), ("parameters", "7"), ("seconds", None), ("sample", 5), ("steps", [1]), ("counts", None)],
)
def test_a_row_that_is_not_as_we_write_it_is_refused(name, value, ladder, tmp_path):
    files, out = [ladder[1].parent / name for name in ("text.txt", "other.txt")], tmp_path / "out"
    shutil.copytree(ladder[1], out)
    begun = read_json(out / "compare.json")
    begun["rungs"][1][name] = value
    write_json(out / "compare.json", begun)
    told = "work" if name == "counts" else name
    with pytest.raises(CheckpointError, match=f"is damaged: .* the {told} of a rung"):
        compare(files, out, resume=True, steps=4, changes=TINY)


@pytest.mark.parametrize("damage", [
    lambda scores: scores[:-1], lambda scores: scores[None], lambda scores: scores * nan, lambda scores: -scores,
    lambda scores: scores * (1 + 1e-6),
])  # fmt: skip
def test_scores_that_are_not_those_of_the_table_are_refused(damage, ladder, tmp_path):
    files, out = [ladder[1].parent / name for name in ("text.txt", "other.txt")], tmp_path / "out"
    shutil.copytree(ladder[1], out)
    path = out / "scores" / "classes.npy"
    np.save(path, damage(np.load(path)))
    with pytest.raises(CheckpointError, match=r"classes\.npy is damaged"):
        compare(files, out, resume=True, steps=4, changes=TINY)


def test_marks_of_the_tokenizer_are_no_text(tmp_path):
    files = [written(tmp_path, TEXT), written(tmp_path, TEXT.replace("Rome", "<eos> Rome", 1), "marked.txt")]
    with pytest.raises(InputError, match=r"marked\.txt contains <eos>, a special token of the tokenizer"):
        compare(files, tmp_path / "out", steps=1, changes=TINY)
    parts = read_parts(files)
    ids = tokenised(parts, tmp_path / "text").held_out
    assert sum(map(len, ids)) == len("".join(parts.held_out).encode())  # bytes, each a token: marks stand in training


@pytest.mark.parametrize(("share", "part"), [(0.5, "train"), (0.87, "valid"), (0.96, "held_out")])
def test_a_mark_is_refused_in_every_part(share, part, tmp_path):
    at = int(share * len(TEXT))
    files = [written(tmp_path, f"{TEXT[:at]} <eos> {TEXT[at:]}")]
    parts = read_parts(files)
    assert "<eos>" in "".join(getattr(parts, part))
    with pytest.raises(InputError, match=r"text\.txt contains <eos>, a special token of the tokenizer"):
        refuse_marks(files, parts, tokenised(parts, tmp_path / "text").tokenizer)


def test_classes_look_at_as_many_tokens_as_the_guide_says(models):
    assert models["classes"].model.order == 3 + 1


def test_too_little_is_named(tmp_path):
    with pytest.raises(InputError, match=r"text\.txt has 5 characters: too little"):
        read_parts([written(tmp_path, "a b c")])
    with pytest.raises(InputError, match=r"19 characters: too little for training and for testing; at least 20"):
        read_parts([written(tmp_path, "a b c d e f g h i j")])
    parts = read_parts([written(tmp_path, "a b c d e f g h i jk")])
    assert (
        "".join(text for part in (parts.train, parts.valid, parts.held_out) for text in part) == "a b c d e f g h i jk"
    )
    with pytest.raises(InputError, match=r"text\.txt has no white space where"):
        read_parts([written(tmp_path, "a" * 100)])


def test_few_steps_are_said_wherever_the_row_is_seen(ladder):
    found, _ = ladder
    said = "transformer took 4 steps only, too few to tell what it can learn"
    assert said in found.table()
    assert said in found.picture().title
    rungs = [{"name": "transformer", "steps": steps} for steps in (99, 100)] + [{"name": "order-1", "steps": None}]
    assert [one.split(" only")[0] for one in hurried({"rungs": rungs})] == ["transformer took 99 steps"]


def test_of_a_large_text_so_much_is_held_out_and_no_more(tmp_path):
    """400,000 characters of all files together, and half as many to validate with; of a small one a tenth."""
    for n, sizes in enumerate([(4_000_000,), (4_800_000, 1_200_000), (5_000_000, 5_000_000), (100_000,)]):
        parts = read_parts([written(tmp_path, "word " * (size // 5), f"{n}-{i}") for i, size in enumerate(sizes)])
        found = [sum(map(len, part)) for part in (parts.valid, parts.held_out)]
        wanted = [min(sum(sizes) * 0.05, 200_000), min(sum(sizes) * 0.1, 400_000)]
        assert found == pytest.approx(wanted, rel=0.001)
        shares = [len(part) / size for part, size in zip(parts.held_out, sizes, strict=True)]
        assert shares == pytest.approx([shares[0]] * len(sizes), rel=0.001)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": 1}, r"seed \(0, now 1\)"), ({"start": "It"}, "start "), ({"steps": 5}, r"steps \(4, now 5\)"),
     ({"steps": None}, "steps "), ({"changes": (*TINY[:-1], "train.threads=2")}, "changes ")],
)  # fmt: skip
def test_a_comparison_goes_on_only_as_it_was_begun(change, said, ladder):
    _, out = ladder
    files = [out.parent / name for name in ("text.txt", "other.txt")]
    asked = {"steps": 4, "changes": TINY, "resume": True}
    with pytest.raises(CheckpointError, match=f"was started with another {said}"):
        compare(files, out, **asked | change)
    for others in (files[::-1], files[:1]):
        with pytest.raises(CheckpointError, match="was started with another text"):
            compare(others, out, **asked)
