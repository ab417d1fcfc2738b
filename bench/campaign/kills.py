"""SIGKILL in the middle of every writer, and what is there afterwards.

Two in three kills, or as many as there are such calls, come before a call that changes the disk or flushes it, the
others at a random instant. Then the path must hold the old or the new, whole, as its reader says; the user's
files must be there, byte for byte; what else lies there must carry a name that only we give. Then the same command is
given once more (or what goes on with it), and must end as the undisturbed one, with nothing left behind.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "4000", "CUTAWAY_TYPECHECK": "0", "TOKENIZERS_PARALLELISM": "false"}

CALLS = frozenset("rename replace unlink remove rmdir mkdir link fsync ftruncate truncate".split())
OURS = re.compile(r"\..+\.[0-9a-f]{32}(\.tmp)?|\.old-[0-9a-f]{32}|\.cutaway-replacing|\.[0-9a-f]{64}\.lock")
KEPT = {"notes.txt": "mine", "letters/one.txt": "dear"}  # the user's, in the folder that is written
LIMIT = 300  # seconds that a command may take
Work = Callable[[], Any]
State = Any  # what a reader finds, as JSON can say it; None where nothing is there


@dataclass(frozen=True)
class Writer:
    """All paths are relative to a folder of its own, in which everything is done."""

    name: str
    prepare: Work  # makes what is there before
    write: Work
    read: Callable[[], State]  # raises where it is damaged
    out: str = "out"
    mine: tuple[str, ...] = ()  # which of KEPT lie in `out`
    again: Work | None = None  # goes on after a kill, unless that is `write`
    partly: Callable[[State, State], bool] = lambda found, new: False  # whether it is a part of the new one
    share: float = 1.0  # of the kills that the others have


def run(seed: int, n: int = 320, jobs: int = 2, only: str = "") -> int:
    """About n kills, spread over all writers; the number of those that failed."""
    _import_all()
    writers = [writer for writer in _writers() if only in writer.name]
    kills = n / sum(writer.share for writer in writers)
    began, failed, total = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        root, waiting, running = Path(folder), list(writers), {}
        while waiting or running:
            while waiting and len(running) < jobs:
                writer = waiting.pop(0)
                place = root / writer.name.replace(" ", "-")
                place.mkdir()
                process = _fork(
                    lambda w=writer, p=place: _try(w, p, seed, max(2, round(kills * w.share))), place / "said"
                )  # type: ignore[misc]
                running[process] = (writer, place)
            process, status = os.wait()
            writer, place = running.pop(process)
            fates = json.loads((place / "fates").read_text()) if (place / "fates").exists() else {}
            bad = sum(count for fate, count in fates.items() if fate.startswith("FAILS"))
            if status or bad:
                print((place / "said").read_text(), flush=True)
            failed, total = failed + bad + (status != 0), total + sum(fates.values())
            told = ", ".join(f"{fate} {count}" for fate, count in sorted(fates.items()))
            print(f"{writer.name:22s} {sum(fates.values()):4d} kills: {told}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    print(f"{total} kills of {len(writers)} writers in {time.monotonic() - began:.0f} s, {failed} failed")
    return failed


def _import_all() -> None:
    """Once, so that a fork of this process begins with its work."""
    import cutaway
    from cutaway.errors import CutawayError

    import_module("torch._dynamo")  # every optimizer imports it
    for module in walk_packages(cutaway.__path__, "cutaway."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError, CutawayError):  # an extra that is not installed
                import_module(module.name)


def _try(writer: Writer, place: Path, seed: int, n: int) -> None:
    """All kills of one writer; what became of them goes into a file."""
    os.environ["CUTAWAY_CACHE"] = str(place / "cache")
    kept, work, paper = place / "kept", place / "work", place / "paper"
    kept.mkdir()
    _done(writer.prepare, kept, paper)
    for name in writer.mine:
        (kept / writer.out / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / writer.out / name).write_text(KEPT[name])
    (kept / "beside.txt").write_text("mine")
    _fresh(kept, work)
    old = _read(writer, work, paper)
    began = time.monotonic()
    _done(writer.write, work, paper)
    seconds = time.monotonic() - began
    new = _read(writer, work, paper)
    assert new is not None, "the undisturbed writer left nothing"
    _fresh(kept, work)
    calls = _calls(writer.write, work, paper)
    draw, fates = random.Random(f"{seed} {writer.name}"), Counter()  # type: ignore[var-annotated]
    before = sorted(draw.sample(range(calls), min(calls, -(-2 * n // 3))))
    for number in range(n):
        _fresh(kept, work)
        if number < len(before):
            where = f"before call {before[number]} of {calls}"
            killed = _killed(writer.write, work, paper, before[number], None)
        else:
            instant = draw.random() * seconds
            where, killed = f"after {instant:.3f} of {seconds:.3f} s", _killed(writer.write, work, paper, None, instant)
        fate = _fate(writer, work, paper, kept, old, new)
        if not killed:
            fate = f"done before, {fate}" if not fate.startswith("FAILS") else fate
        if fate.startswith("FAILS"):
            print(f"{writer.name}, killed {where}: {fate}\n{paper.read_text()}", flush=True)
            fate = "FAILS"
        fates[fate] += 1
        (place / "fates").write_text(json.dumps(fates))


def _fate(writer: Writer, work: Path, paper: Path, kept: Path, old: State, new: State) -> str:
    """What a kill left: the old, the new, or a part that is gone on with."""
    if said := _others(writer, work, kept, left=True):
        return f"FAILS: {said}"
    try:
        found = _read(writer, work, paper)
    except RuntimeError as error:
        return f"FAILS: {error}"
    fate = "new" if found == new else "old" if found == old else "a part" if writer.partly(found, new) else ""
    if not fate:
        return f"FAILS: neither the old nor the new, but {json.dumps(found)[:500]}"
    try:
        _done(writer.again or writer.write, work, paper)
        again = _read(writer, work, paper)
    except RuntimeError as error:
        return f"FAILS: the next one: {error}"
    if again != new:
        return f"FAILS: the next one leaves {json.dumps(again)[:500]}, not {json.dumps(new)[:500]}"
    if said := _others(writer, work, kept, left=False):
        return f"FAILS: after the next one, {said}"
    return fate


def _others(writer: Writer, work: Path, kept: Path, *, left: bool) -> str:
    """What is not as it should be beside and within what is written."""
    wanted = {writer.out + "/" + name: KEPT[name] for name in writer.mine} | {"beside.txt": "mine"}
    for name, text in wanted.items():
        if not (work / name).is_file() or (work / name).read_text() != text:
            return f"the user's {name} is gone"
    known = {path.name for path in kept.iterdir()} | {writer.out, f".{Path(writer.out).name}.progress"}
    for path in [*work.iterdir(), *((work / writer.out).iterdir() if (work / writer.out).is_dir() else ())]:
        if path.name.startswith(".") and path.name not in known and not (left and OURS.fullmatch(path.name)):
            return f"{path.name} is left behind"
        if path.parent == work and path.name not in known and not path.name.startswith("."):
            return f"{path.name} appeared"
    return ""


def _fresh(kept: Path, work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(kept, work, symlinks=True)


# --- processes --------------------------------------------------------------------------------------------------------


def _done(work: Work, folder: Path, paper: Path) -> None:
    """In a process of its own, to the end."""
    status = _wait(_fork(lambda: _inside(work, folder), paper))
    if status:
        raise RuntimeError(f"exit code {status}: {paper.read_text()[-2000:]}")


def _read(writer: Writer, folder: Path, paper: Path) -> State:
    found = paper.with_name("found")

    def read() -> None:
        found.write_text(json.dumps(_inside(writer.read, folder)))

    found.unlink(missing_ok=True)
    if status := _wait(_fork(read, paper)):
        raise RuntimeError(f"it is not read, exit code {status}: {paper.read_text()[-2000:]}")
    return json.loads(found.read_text())


def _calls(work: Work, folder: Path, paper: Path) -> int:
    """How many calls change the disk."""
    counted = paper.with_name("counted")

    def count() -> None:
        made = _watched(lambda: _inside(work, folder), None)
        counted.write_text(str(made))

    if status := _wait(_fork(count, paper)):
        raise RuntimeError(f"exit code {status}: {paper.read_text()}")
    return int(counted.read_text())


def _killed(work: Work, folder: Path, paper: Path, call: int | None, instant: float | None) -> bool:
    """Whether it was killed before it was done."""
    process = _fork(
        lambda: _watched(lambda: _inside(work, folder), call) if call is not None else _inside(work, folder), paper
    )
    if instant is not None:
        time.sleep(instant)
        os.kill(process, signal.SIGKILL)  # it is ours until we have waited for it
    return _wait(process) == -signal.SIGKILL


def _watched(work: Work, last: int | None) -> int:
    """Counts the calls, and dies before the last."""
    made = 0

    def see(frame: Any, event: str, function: Any) -> None:
        nonlocal made
        if (event == "c_call" and function.__name__ in CALLS) or (
            event == "call" and frame.f_code.co_name == "exchange"
        ):
            if made == last:
                os.kill(os.getpid(), signal.SIGKILL)
            made += 1

    sys.setprofile(see)
    try:
        work()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    return made


def _inside(work: Work, folder: Path) -> Any:
    os.chdir(folder)
    try:
        return work()
    except SystemExit as end:
        if end.code:
            raise
    return None


def _fork(work: Work, paper: Path) -> int:
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        signal.alarm(LIMIT if paper.name != "said" else 0)
        descriptor = os.open(paper, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


# --- readers ----------------------------------------------------------------------------------------------------------


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _files(folder: str = "out") -> State:
    """Name → SHA-256 of what lies in a folder, the user's and hidden files left out; a file as itself."""
    place = Path(folder)
    if not place.is_dir():
        return {"": _sha(place)} if place.exists() else None
    found = {str(path.relative_to(place)): _sha(path) for path in sorted(place.rglob("*")) if path.is_file()}
    return {name: sha for name, sha in found.items() if name not in KEPT and not name.startswith((".", "run/"))} or None


def _model() -> State:
    """As it is loaded; without a config.json it is none."""
    from cutaway.checkpoints import load, tokenizer_of
    from cutaway.errors import CheckpointError

    try:
        model, tokenizer = load("out"), tokenizer_of("out")
    except CheckpointError as error:
        if "no config.json" in str(error) or "does not exist" in str(error) or "has not ended" in str(error):
            return None
        raise
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
    files = _files()
    files.pop("README.md", None)  # it has the date and the seconds
    return {"weights": weights, "vocab": None if tokenizer is None else tokenizer.vocab_size, "files": files}


def _engine() -> State:
    """A folder for another tool, which knows nothing of ours: with its config.json it is whole."""
    from cutaway.folders import JOURNAL, finish_replacing

    if Path("out", JOURNAL).exists():
        assert not Path("out", "config.json").exists() or not any(Path("out", JOURNAL).glob("config.json"))
    finish_replacing(Path("out"))
    return _files() if Path("out", "config.json").exists() else None


def _tokenizer() -> State:
    from cutaway.tokens import find_tokenizer

    found = find_tokenizer(Path("out"))
    return None if found is None else {"vocab": found.vocab_size, "roles": dict(found.roles), "files": _files()}


def _ngrams() -> State:
    from cutaway.before.ngrams.ngram_folder import is_ngram_folder, read_ngram_folder

    if not is_ngram_folder(Path("out")):
        assert not Path("out").exists() or not list(Path("out").iterdir())
        return None
    model, cut = read_ngram_folder(Path("out"))
    return {"model": str(model), "names": len(cut.names), "files": _files()}


def _arpa() -> State:
    from cutaway.before.ngrams.arpa import read_arpa

    return {"words": len(read_arpa(Path("out.arpa"))[1]), "file": _sha(Path("out.arpa"))}


def _vectors() -> State:
    from cutaway.checkpoints.word_vectors import is_word_vectors, read_word_vectors

    if not is_word_vectors(Path("out")):
        return None
    words, numbers = read_word_vectors(Path("out"))
    return {"words": len(words), "shape": list(numbers.shape), "files": _files()}


def _picture(name: str) -> Callable[[], State]:
    def read() -> State:
        from cutaway.pictures import read_picture

        return {"kind": read_picture(name).kind} if Path(name).exists() else None

    return read


def _json(name: str, *keys: str) -> Callable[[], State]:
    """The parts of it that are the same every time."""

    def read() -> State:
        from cutaway.files import read_json

        found = read_json(Path(name)) if Path(name).exists() else None
        return None if found is None else {key: found[key] for key in keys}

    return read


def _checkpoints() -> State:
    """The model, or None; and every checkpoint that is there is whole."""
    from cutaway.training.checkpoint import checkpoints, read_checkpoint

    for path in checkpoints(Path("out/run/checkpoints")):
        read_checkpoint(path)
    return _model()


def _lines() -> State:
    return Path("out").read_text() if Path("out").exists() else None


def _game() -> State:
    from cutaway.before.shannon.game import read_game

    return read_game(Path("out")) if Path("out").exists() else None


def _rungs() -> State:
    from cutaway.files import read_json

    path = Path("out/compare.json")
    return [[rung["name"], rung["bits_per_byte"]] for rung in read_json(path)["rungs"]] if path.exists() else None


def _cache() -> State:
    from cutaway.data.cache import META, fault_of

    folder = Path("cache/data")
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []
    assert all(fault_of(path) is None for path in entries)
    return {path.name: sorted(p.name for p in path.iterdir() if p.name != META) for path in sorted(entries)} or None


# --- writers ----------------------------------------------------------------------------------------------------------


def _cli(*words: Any) -> Work:
    def work() -> None:
        from cutaway.cli import app

        app([str(word) for word in words], prog_name="cutaway", standalone_mode=True)

    return work


def _all(*works: Work) -> Work:
    def work() -> None:
        for one in works:
            try:
                one()
            except SystemExit as end:
                if end.code:
                    raise

    return work


def _text(name: str = "text.txt", seed: int = 1, words: int = 400) -> Work:
    draw = random.Random(seed)
    text = " ".join(
        draw.choice("the cat sat on a mat and my dog ran far into the wood .".split()) for _ in range(words)
    )
    return lambda: Path(name).write_text(text + "\n") and None


def _saved(folder: str, seed: int, tokenizer: str | None = "char", **more: Any) -> Work:
    """A tiny decoder, with another tokenizer for another seed."""

    def work() -> None:
        from cutaway.checkpoints import save
        from cutaway.families import build
        from cutaway.tokens import train_tokenizer

        made = None
        if tokenizer is not None:
            made = train_tokenizer(["the cat sat on a mat" + ("and the dog ran" * seed)], kind=tokenizer)
        size = {"n_layers": 2, "d_model": 32, "n_heads": 2, "d_ff": 64, "vocab_size": 50, "max_len": 32}
        save(build("gpt2", seed=seed, start_id=0, end_ids=(0,), **size).eval(), folder, made, **more)

    return work


def _trained(task: str = "", **tables: Any) -> Callable[[bool], Work]:
    """A run of 12 steps, with a checkpoint every three; anew, or gone on with where something is there."""

    def start(resume: bool) -> Work:
        def work() -> None:
            from helpers.faults.killed_runs import small

            from cutaway.training.recipe_file import recipe_from
            from cutaway.training.train import train

            values = small(Path.cwd(), **{"train_steps": 12, "checkpoint_every": 3, "train_spike": 0.0, **tables})
            known = resume and Path("out/run/log.jsonl").exists()
            train(recipe_from(values), "out", resume=known)

        return work

    return start


def _written(name: str) -> Work:
    return lambda: Path(name).write_text("old") and None


def _when(there: str, given: Work, absent: Work) -> Work:
    return lambda: given() if Path(there).exists() else absent()


def _entries() -> None:
    from cutaway.data.corpus import tokenised_documents
    from cutaway.tokens import train_tokenizer

    os.environ["CUTAWAY_CACHE"] = str(Path("cache").resolve())
    tokenizer = train_tokenizer(["the cat sat on a mat and my dog ran far into the wood ."], kind="char")
    tokenised_documents([Path("text.txt")], tokenizer, end_id=tokenizer.eos_id)


def _writers() -> Iterator[Writer]:
    models = _all(_saved("out", 1), _saved("other", 2))
    notes, all_mine = ("notes.txt",), tuple(KEPT)
    yield Writer("save", models, _saved("out", 2), _model, mine=notes)
    yield Writer("save beside folders", models, _saved("out", 2), _model, mine=all_mine)
    yield Writer("save shards", models, _saved("out", 2, shard_size=8000), _model, mine=notes)
    yield Writer("export", models, _cli("export", "other", "out", "--force"), _model, mine=notes)
    yield Writer("export beside folders", models, _cli("export", "other", "out", "--force"), _model, mine=all_mine)
    engine = _cli("export", "other", "out", "--to", "ctranslate2", "--force")
    yield Writer("export ctranslate2", models, engine, _engine, mine=notes)
    onnx = _cli("export", "other", "out", "--to", "onnx", "--force")
    yield Writer("export onnx", models, onnx, _engine, mine=notes, share=0.3)
    published = _all(_saved("out", 1), _saved("other", 2), _cli("export", "other", "hf"))
    yield Writer("import", published, _cli("import", "hf", "out", "--force"), _model, mine=notes)
    yield Writer("pack", models, _cli("pack", "other", "out", "--force"), _model, mine=notes)
    shards = _cli("pack", "other", "out", "--store", "bf16", "--shard-size", "0.01", "--force")
    yield Writer("pack shards", models, shards, _model, mine=all_mine)

    texts = _all(_text(), _text("other.txt", 2))
    train = ("tokenizer", "train")
    words = _cli(*train, "other.txt", "--kind", "word", "--out", "out", "--force")
    yield Writer("tokenizer train", _all(texts, _cli(*train, "text.txt", "--kind", "char", "--out", "out")), words,
                 _tokenizer, mine=notes)  # fmt: skip
    counted = _all(texts, _cli("ngram", "text.txt", "--out", "out", "--order", 4))
    yield Writer("ngram", counted, _cli("ngram", "other.txt", "--out", "out", "--force"), _ngrams)
    classes = _cli("ngram", "other.txt", "--classes", 3, "--out", "out", "--force")
    yield Writer("ngram classes", counted, classes, _ngrams)
    arpa = _cli("ngram", "other.txt", "--out", "out.arpa", "--force")
    yield Writer("ngram arpa", _all(texts, _cli("ngram", "text.txt", "--out", "out.arpa")), arpa, _arpa, out="out.arpa")
    few = ("--d", 8, "--epochs", 1)
    vectors = _cli("vectors", "other.txt", "--out", "out", "--force", *few)
    yield Writer("vectors", _all(texts, _cli("vectors", "text.txt", "--out", "out", *few)), vectors, _vectors)

    start = _trained()
    yield Writer("train", _text(), start(False), _checkpoints, again=start(True), share=1.5)
    done = _all(
        _text(), start(False), lambda: [p.unlink() for p in (Path("out/run/done.json"), Path("out/config.json"))]
    )
    yield Writer("train, its end", done, start(True), _checkpoints, share=1.0)
    tiny = ("--steps", 2, "--set", "model.d_model=16", "--set", "train.tokens=32", "--set", "train.threads=1")
    ladder = _cli("compare", "text.txt", *tiny, "--out", "out")
    resumed = _when("out/compare.json", _cli("compare", "text.txt", *tiny, "--out", "out", "--resume"), ladder)
    yield Writer("compare", _text(words=80), ladder, _rungs, again=resumed, share=0.7,
                 partly=lambda found, new: found == new[: len(found)])  # fmt: skip

    def prefix(found: State, new: State) -> bool:
        return found is not None and new.startswith(found)

    asked = ("fill", "--model", "cloze", "--input", "in.txt", "--output", "out", "--json")
    lines = _all(lambda: Path("in.txt").write_text("The cat [MASK].\n" * 300) and None)
    goes_on = _when("out", _cli(*asked, "--resume"), _cli(*asked))
    yield Writer("fill, lines", lines, _cli(*asked), _lines, again=goes_on, partly=prefix)
    asked = ("translate", "--model", "en-de", "--to", "de", "--input", "in.txt", "--output", "out", "--beam", "1")
    lines = _all(lambda: Path("in.txt").write_text("The dog barks.\nA cat runs.\n" * 150) and None)
    goes_on = _when("out", _cli(*asked, "--resume"), _cli(*asked))
    yield Writer("translate, lines", lines, _cli(*asked), _lines, again=goes_on, partly=prefix)

    def guessed(found: State, new: State) -> bool:
        return found["guesses"] == new["guesses"][: len(found["guesses"])]

    letters = lambda: Path("keys.txt").write_text("etaoinshrdlucmfwygpbvkxqjz " * 40) and None  # noqa: E731
    game = _cli("shannon", "text.txt", "--play", "--answers", "keys.txt", "--game", "out", "--samples", 3)
    rest = _all(_when("out", lambda: Path("out").unlink(), lambda: None), game)
    yield Writer("shannon", _all(_text(words=60), letters), game, _game, again=rest, partly=guessed)

    quick = ("--language", "local", "--model", "rotary", "--steps", 2, "--words", 2)
    drawn = _cli("chomsky", *quick, "--out", "out.svg")
    yield Writer("chomsky", _cli("chomsky", *quick, "--out", "out.svg"), drawn, _picture("out.svg"), out="out.svg")
    page = _cli("lens", "other", "the cat", "--out", "out.html")
    yield Writer("lens, a page", models, page, _picture("out.html"), out="out.html")
    data = _cli("lens", "other", "the cat", "--out", "out.json", "--force")
    yield Writer("lens, data", _all(models, lambda: Path("out.json").write_text('{"model": "old"}') and None), data,
                 _json("out.json", "model"), out="out.json")  # fmt: skip
    tuned = _cli("lens", "other", "--tune", "text.txt", "--steps", 2, "--out", "out.safetensors")
    forced = _cli("lens", "other", "--tune", "text.txt", "--steps", 2, "--out", "out.safetensors", "--force")
    yield Writer("lens, tuned", _all(models, _text()), tuned, lambda: _files("out.safetensors"), again=forced,
                 out="out.safetensors")  # fmt: skip
    plot = _cli("plot", "out", "--out", "curve.svg")
    yield Writer("plot", _all(_text(), start(False), plot), plot, lambda: _files("curve.svg"), out="curve.svg")
    embedded = _cli("embed", "the cat", "--model", "other", "--out", "out.npy", "--force")
    yield Writer("embed", _all(models, _written("out.npy")), embedded, lambda: _files("out.npy"), out="out.npy")
    verify = _cli("verify", "other", "--quick", "--out", "out.json")
    yield Writer("verify", models, verify, _json("out.json", "files", "family", "task"), out="out.json", share=0.5)
    yield Writer("data cache", _text(), _entries, _cache, out="cache")
