"""Measures all laws, one after the other."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from cutaway import __version__
from cutaway.arguments import checked
from cutaway.bundled import find
from cutaway.certificate import export_laws, laws, text_laws
from cutaway.certificate.certificate import Certificate, fingerprint
from cutaway.certificate.eight_bits import has_8_bits, unrounded
from cutaway.certificate.entry import Entry, Measure, NotMeasured, judge
from cutaway.certificate.inputs import default_length, full_length, long_inputs, short_inputs
from cutaway.certificate.subject import Subject
from cutaway.checkpoints import load, tokenizer_of
from cutaway.checkpoints.model_folder import check_vocabulary
from cutaway.errors import InputError
from cutaway.model.model import Model
from cutaway.tokens import Tokenizer

Law = Callable[[Subject], Measure]
LAWS: dict[str, Law] = {
    "weights are finite": laws.weights_are_finite,
    "batch = single": laws.batch_is_single,
    "left = right padding": laws.left_is_right,
    "cached = uncached": laws.cached_is_uncached,
    "fused = explicit attention": laws.fused_is_explicit,
    "packed = unpacked": laws.packed_is_unpacked,
    "compiled = eager": laws.compiled_is_eager,
    "tables = formulas": laws.tables_are_formulas,
    "int8 ≈ fp32": laws.int8_is_near,
    "export to HF = native": export_laws.export_is_native,
    "transformers = native": export_laws.transformers_is_native,
    "beam 1 = greedy": text_laws.beam_one_is_greedy,
    "greedy in batches of 1, 3, 8": partial(text_laws.same_in_any_batch, width=1),
    "beam 4 in batches of 1, 3, 8": partial(text_laws.same_in_any_batch, width=4),
    "scores = uncached": text_laws.scores_are_uncached,
}
SLOW = ("compiled = eager",)  # left out by `quick`
SHORT = (
    "weights are finite",
    "tables = formulas",
    "int8 ≈ fp32",
)  # measured on short rows only: long ones change nothing
LONG = ("compiled = eager",)  # measured on long rows only: compiling takes as long for each length


@checked
def verify(
    model: Model | Path | str,
    *,
    tokenizer: Tokenizer | None = None,
    seed: int = 0,
    quick: bool = False,
    length: int | None = None,
    device: torch.device | str = "cpu",
    report: Callable[[str], None] = lambda law: None,
) -> Certificate:
    """Measures every law on a model, in single precision; `quick` leaves out torch.compile.

    `length` is the number of tokens of the longest row: by default the model's maximum, or less if one pass over so
    many tokens would take long. The certificate records it.

    `model` is a folder, file or name, whose own tokenizer is used unless another is given; or a loaded model, whose
    certificate then names no files. `report` is called with the name of each law before it is measured.
    """
    files: dict[str, str] = {}
    if not isinstance(model, Model):
        path = find(model)
        files = fingerprint(path)
        tokenizer = tokenizer_of(path) if tokenizer is None else tokenizer
        model = load(path, device=device)
    if model.dtype != torch.float32:
        raise InputError(f"a model in {model.dtype}: laws are measured in single precision, so pass model.float()")
    if tokenizer is not None and "vocab_size" in model.config.to_dict():
        check_vocabulary(tokenizer, model.config.to_dict()["vocab_size"])
    model = model.eval()
    length = checked_length(model, length)
    return Certificate(
        family=model.config.family,
        task=model.config.task,
        parameters=model.n_parameters(),
        precision="int8" if has_8_bits(model) else "fp32",
        files=files,
        versions={"cutaway": __version__, "torch": torch.__version__, "python": platform.python_version()},
        machine={
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(model.device),
            "device": model.device.type,
        },
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        quick=quick,
        length=length,
        max_len=getattr(model, "max_len", None),
        entries=measure_laws(model, tokenizer, seed=seed, quick=quick, length=length, report=report),
    )


def checked_length(model: Model, length: int | None) -> int | None:
    """The number of tokens of the longest row; None for a model that reads images."""
    full = full_length(model)
    if length is None:
        return default_length(model)
    if full is None:
        raise InputError(f"length={length}: this model reads images of one size: leave it out")
    longest = getattr(model, "max_len", None) or length
    if not 1 <= length <= longest:
        raise InputError(f"length={length} is not between 1 and max_len={longest}")
    return length


def measure_laws(
    model: Model,
    tokenizer: Tokenizer | None,
    *,
    seed: int,
    quick: bool,
    length: int | None,
    report: Callable[[str], None],
) -> list[Entry]:
    entries = []
    with unrounded(model), Subject(model, short_inputs(model, tokenizer, seed)) as short:
        inputs = long_inputs(model, length, seed)
        long = None if inputs is None else Subject(model, inputs, first=short)
        for law, measure in LAWS.items():
            report(law)
            subjects = [x for x in (short, long) if x is not None]
            subjects = subjects[:1] if law in SHORT else subjects[-1:] if law in LONG else subjects
            left_out = quick and law in SLOW
            entries.append(judge(law, _left_out if left_out else partial(_worst, measure, subjects)))
    return entries


def _worst(law: Law, subjects: Sequence[Subject]) -> Measure:
    """The worse result of short and long rows."""
    measures = [law(subject) for subject in subjects]
    worst = max(measures, key=lambda measure: math.inf if math.isnan(measure.value) else measure.value)
    return replace(worst, inputs=", and ".join(measure.inputs for measure in measures))


def _left_out() -> Measure:
    raise NotMeasured("--quick")


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()
