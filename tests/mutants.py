"""Breaks the code on purpose, one line at a time, and sees that a law notices: `python tests/mutants.py [WORD]`.

A law that no broken line can violate proves nothing. Each mutant is made in a copy of `src/`, and the tests that
should catch it are run there. Exit code 1 when one survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODEL = "src/cutaway/model/"
TIME, ATTENTION, POSITIONS, STREAM, TAPS = (f"tests/laws/test_{x}.py" for x in ("time", "attention", "positions", "stream", "taps"))
GOLDEN, BAD = "tests/golden", "tests/model/test_bad_input.py"

# what breaks · file · this line · becomes that one · the tests that must notice
MUTANTS = [
    ("the future is visible", "masks.py", "CAUSAL = Mask(causal=True)", "CAUSAL = Mask()", f"{TIME} -k future"),
    ("the future is visible by one", "masks.py", ".tril(n_key - n_query)", ".tril(n_key - n_query + 1)", ATTENTION),
    ("padding is visible", "masks.py", "return Mask(real[:, None, None, :])", "return Mask(torch.ones_like(real)[:, None, None, :])", f"{TIME} -k fault_12"),
    ("the mask is inverted", "masks.py", "return Mask(real[:, None, None, :])", "return Mask(~real[:, None, None, :])", f"{TIME} -k alone"),
    ("cross-attention forgets its mask", "attention.py", "return self.find(query, key, value, mask, None)", "return self.find(query, key, value, EVERYWHERE, None)", f"{TIME} -k source"),
    ("documents see each other", "masks.py", "    if documents is not None:\n        mask &= same_document(documents)\n", "", f"{TIME} -k packed"),
    ("positions run on in a pack", "positions.py", "return index - (index * starts).cummax(dim=1).values", "return index + 0 * starts", f"{TIME} -k packed"),
    ("positions count padding", "positions.py", "return (real.cumsum(dim=1) - 1).clamp(min=0)", "return index.expand_as(real)", f"{TIME} -k alone"),
    ("the window is one too wide", "masks.py", ".abs() < size", ".abs() <= size", ATTENTION),
    ("the cache forgets the window", "cache.py", "        if window is not None:\n            mask &= sliding_window(window, positions, self.positions)\n", "", f"{TIME} -k cached"),
    ("the cache shows empty slots", "cache.py", "(here != NOTHING) & (here <= positions[:, None, :, None])", "here <= positions[:, None, :, None]", f"{TIME} -k cached"),
    ("the cache shows the future", "cache.py", "(here != NOTHING) & (here <= positions[:, None, :, None])", "here != NOTHING", f"{TIME} -k cached"),
    ("the cache counts padding", "cache.py", "self.seen.add_(n_real)", "self.seen.add_(taken)", f"{TIME} -k side_by_side"),
    ("a reordered cache keeps its positions", "cache.py", "(*self.keys, *self.values, self.positions, self.lengths, self.seen)", "(*self.keys, self.positions, self.lengths, self.seen)", f"{TIME} -k survive"),
    ("a cropped cache remembers", "cache.py", "self.positions.masked_fill_(slot >= lengths[:, None], NOTHING)", "pass", f"{TIME} -k cropped"),
    ("beams take each other's memory", "attention.py", "query.unflatten(0, (-1, n_beams)).transpose(1, 2)", "query.unflatten(0, (n_beams, -1)).transpose(0, 1).transpose(1, 2)", f"{TIME} -k beams"),
    ("a row that sees nothing is NaN", "attention.py", "torch.finfo(scores.dtype).min)", "float('-inf'))", ATTENTION),
    ("a row that sees nothing sees all", "attention.py", ".softmax(dim=-1).masked_fill(~may_look, 0.0)", ".softmax(dim=-1)", ATTENTION),
    ("scores are not scaled", "attention.py", "(query.shape[-1] ** -0.5 if scale is None else scale)", "(1.0 if scale is None else scale)", f"{ATTENTION} {GOLDEN}"),
    ("the fused path drops the bias", "attention.py", "table = bias if table is None else bias.masked_fill(~table, float(\"-inf\"))", "pass", ATTENTION),
    ("heads are mixed in the wrong order", "attention.py", "self.tap(\"heads\", heads).transpose(1, 2).flatten(2)", "self.tap(\"heads\", heads).transpose(2, 3).flatten(2).reshape(heads.shape[0], heads.shape[2], -1)", GOLDEN),
    ("values are keys", "attention.py", "query, key, value = self.tap(\"query\", query), self.tap(\"key\", key), self.tap(\"value\", value)", "query, key, value = self.tap(\"query\", query), self.tap(\"key\", key), self.tap(\"value\", key)", GOLDEN),
    ("the pattern on show is not the one in use", "attention.py", "return self.tap(\"pattern\", pattern_of(scores, mask))", "return self.tap(\"pattern\", pattern_of(scores * 1.01, mask))", TAPS),
    ("reading takes the explicit path", "attention.py", "if self.edits(\"scores\", \"pattern\"):", "if self.reads(\"scores\", \"pattern\"):", f"{TAPS} -k bit"),
    ("edits are ignored by the fused path", "attention.py", "if self.edits(\"scores\", \"pattern\"):", "if False:", f"{TAPS} -k edited"),
    ("rotation by twice the angle for keys", "attention.py", "query, key = rotation(query), rotation(key)", "query, key = rotation(query), rotation(rotation(key))", f"{TIME} -k left"),
    ("rotary turns the wrong way in one half", "positions.py", "second * cos + first * sin", "second * cos - first * sin", POSITIONS),
    ("rotary frequencies lose precision", "positions.py", "kind = torch.promote_types(self.frequencies.dtype, torch.float32)", "kind = self.frequencies.dtype", POSITIONS),
    ("sine and cosine change places", "positions.py", "table[:, 0::2] = angle.sin()", "table[:, 0::2] = angle.cos()", f"{POSITIONS} {GOLDEN}"),
    ("relative buckets lose their side", "positions.py", "(ahead > 0) * n", "(ahead > 0) * 0", POSITIONS),
    ("pre-norm adds the normalised stream", "blocks.py", "return x + dropout(sublayer(norm(x)))", "return norm(x) + dropout(sublayer(norm(x)))", STREAM),
    ("post-norm forgets the residual", "blocks.py", "return norm(x + dropout(sublayer(x)))", "return norm(dropout(sublayer(x)))", STREAM),
    ("a norm's scale is not its own", "norms.py", "(x.var(-1, keepdim=True, unbiased=False) + self.eps).rsqrt()", "(x.var(-1, keepdim=True) + self.eps).rsqrt()", STREAM),
    ("a watch sees every model", "tap.py", "return _watcher.see((id(self), name), value)", "return _watcher.see((next((k for k, n in _watcher.reads if n == name), 0), name), value)", f"{TAPS} -k second"),
    ("a failed pass leaves its watcher", "tap.py", "    finally:\n        _watcher = outer", "    finally:\n        pass", TAPS),
    ("ids are not checked", "embeddings.py", "if low < 0 or high >= n:", "if False:", BAD),
    ("the last id is refused", "embeddings.py", "if low < 0 or high >= n:", "if low < 0 or high >= n - 1:", TIME),
    ("length is not checked", "embeddings.py", "ids.shape[1] > max_len:", "ids.shape[1] > max_len + 1:", BAD),
    ("the limit itself is refused", "embeddings.py", "ids.shape[1] > max_len:", "ids.shape[1] >= max_len:", BAD),
    ("a full cache is not checked", "cache.py", "if needed > self.max_len:", "if False:", BAD),
    ("unknown keys are ignored", "config.py", "if unknown:", "if False:", BAD),
    ("a tied head copies its matrix", "embeddings.py", "weight = self.weight if owner is None else owner.matrix", "weight = self.weight if owner is None else nn.Parameter(owner.matrix.clone())", GOLDEN),
]  # fmt: skip


def survives(file: str, old: str, new: str, tests: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / MODEL / file
        text = path.read_text()
        if text.count(old) < 1:
            raise SystemExit(f"{file} no longer holds {old!r}: bring the mutant up to date")
        path.write_text(text.replace(old, new))
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src", "CI": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
        words, _, only = tests.partition(" -k ")
        chosen = words.split() + (["-k", only] if only else [])
        ended = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise SystemExit(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
        return ended.returncode == 0


def main() -> int:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = 0
    for what, *mutant in MUTANTS:
        if word in what:
            alive = survives(*mutant)
            survivors += alive
            print("SURVIVES" if alive else "caught  ", what, flush=True)
    print(f"{survivors} of {len(MUTANTS)} mutants survive")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main())
