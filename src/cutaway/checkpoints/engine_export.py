"""Models for engines that others run at scale: written, then held against our own answers on random inputs."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.checkpoints.agreement import Agreement, compare_answers, longest_text, random_ids
from cutaway.errors import InputError
from cutaway.model.model import EncoderDecoderModel, Model
from cutaway.model.tap import uncompiled
from cutaway.tokens import Tokenizer

ENGINES = ("ctranslate2", "onnx")
# What is allowed, as a share of the largest log-probability. Rounded weights give other answers: there only a gross
# error shows, and the figure says how much the rounding costs.
LIMITS = {"float32": 1e-4, "float16": 0.01, "bfloat16": 0.05, "int8": 0.2}
N_TEXTS, LONGEST = 8, 24


def export_engine(
    model: Model, folder: Path, tokenizer: Tokenizer | None, *, to: str, quantization: str | None = None
) -> Agreement:
    """Writes the folder and says how far its answers are from ours; it stays there also when they are far."""
    model = uncompiled(model)
    if model.training:
        raise InputError("this model is in training and drops out at random: call model.eval() first")
    if to == "ctranslate2":
        from cutaway.checkpoints.to_ctranslate2 import export_ctranslate2

        own = str(model.dtype).removeprefix("torch.")
        quantization = quantization or (own if own in LIMITS else "float32")
        export_ctranslate2(model, folder, tokenizer, quantization)
        return measure_ctranslate2(model, folder, tokenizer, quantization)
    from cutaway.checkpoints.to_onnx import export_onnx, measure_onnx

    export_onnx(model, folder, tokenizer)
    return measure_onnx(model, folder)


@torch.no_grad()
def measure_ctranslate2(model: Model, folder: Path, tokenizer: Tokenizer | None, quantization: str) -> Agreement:
    """The log-probabilities of random texts, read at once (teacher forcing), there and here."""
    from cutaway.checkpoints.to_ctranslate2 import ctranslate2, source_vocabulary, vocabulary

    c: Any = model.config
    ours: Any = model if model.dtype == torch.float32 else copy.deepcopy(model).float()
    names, pairs = vocabulary(c.vocab_size, tokenizer), []
    across = isinstance(model, EncoderDecoderModel)
    engine = (ctranslate2().Translator if across else ctranslate2().Generator)(
        str(folder),
        inter_threads=1,
        intra_threads=torch.get_num_threads(),
        compute_type="int8" if quantization == "int8" else "float32",
    )
    for n in range(N_TEXTS):
        length = 2 + n * (longest_text(model, LONGEST) - 2) // N_TEXTS
        text = random_ids(1, length, c.vocab_size, seed=n)
        written = [names[id] for id in text[0].tolist()]
        if across:
            own_names = source_vocabulary(model, tokenizer)  # type: ignore[arg-type]
            source = random_ids(1, length, len(own_names), seed=100 + n)
            (found,) = engine.score_batch([[own_names[id] for id in source[0].tolist()]], [written])
            start, end = torch.tensor([[c.start_id]]), torch.tensor([[c.end_ids[0]]])
            logits = ours(source.to(ours.device), torch.cat([start, text], dim=1).to(ours.device))
            text = torch.cat([text, end], dim=1)
        else:
            (found,) = engine.score_batch([written])
            logits, text = ours(text.to(ours.device))[:, :-1], text[:, 1:]
        pairs.append((_log_ps(logits, text), torch.tensor(found.log_probs)))
    ends, notes = [names[id] for id in c.end_ids], []
    if len(ends) > 1:
        notes = [f"it knows one end, {ends[0]!r}: give generate_batch or translate_batch end_token={ends}"]
    return compare_answers("CTranslate2", quantization, "log-probabilities", pairs, LIMITS[quantization], notes)


def _log_ps(logits: Tensor, text: Tensor) -> Tensor:
    return logits.double().cpu().log_softmax(dim=-1).gather(2, text[:, :, None])[0, :, 0]
