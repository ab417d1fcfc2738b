"""What goes out is what is here: the model in the Hugging Face layout, read again by us and by `transformers`."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from cutaway.certificate.asked import Asked, one_by_one, together
from cutaway.certificate.entry import Measure, NotApplicable, NotMeasured, difference
from cutaway.checkpoints import export, load
from cutaway.errors import CutawayError
from cutaway.files import read_json
from cutaway.model.model import Model

# what their architectures call it, in the order of `asked.answers`
SCORES = ("prediction_logits", "logits", "last_hidden_state")


@contextmanager
def exported(model: Model) -> Iterator[Path]:
    with TemporaryDirectory(prefix="cutaway-verify-") as folder:
        try:
            export(model, folder)
        except CutawayError as error:
            raise NotApplicable(str(error)) from None
        yield Path(folder)


def again_is_native(model: Model, asked: Asked) -> Measure:
    """Out and in again, nothing is lost."""
    with exported(model) as folder:
        again = load(folder, dtype=model.dtype, device=model.device)
        return Measure(value=difference(together(again, asked), together(model, asked)), inputs=asked.inputs)


def peer_is_native(model: Model, asked: Asked) -> Measure:
    """`transformers` computes the same from the exported folder."""
    if find_spec("transformers") is None:
        raise NotMeasured("extra missing: transformers")
    with exported(model) as folder:
        theirs = _load(folder, model)
        found = [_answer(theirs, model, asked, i) for i in range(len(asked))]
        return Measure(value=difference(one_by_one(model, asked), found), inputs=asked.inputs)


def _load(folder: Path, model: Model) -> Any:
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        kind = getattr(transformers, read_json(folder / "config.json")["architectures"][0])
        options = {"dtype": model.dtype, "local_files_only": True, "use_safetensors": True}
        return kind.from_pretrained(folder, **options).to(model.device).eval()
    finally:
        transformers.logging.enable_progress_bar()
        transformers.logging.set_verbosity(verbosity)


@torch.no_grad()
def _answer(theirs: Any, model: Model, asked: Asked, i: int) -> Tensor:
    """Alone, so that nothing depends on how they pad."""
    if asked.pictures is not None:
        output = theirs(pixel_values=asked.pictures[i : i + 1])
    else:
        ids = torch.tensor([asked.rows[i]], device=model.device)
        more = {"attention_mask": torch.ones_like(ids)}
        if asked.targets:
            more["decoder_input_ids"] = torch.tensor([asked.targets[i]], device=model.device)
        if asked.segments:
            more["token_type_ids"] = torch.tensor([asked.segments[i]], device=model.device)
        output = theirs(input_ids=ids, **more)
    said = [next(output[name] for name in SCORES if output.get(name) is not None)]
    for ours, task, name in (
        ("next_sentence", "pretrain", "seq_relationship_logits"),
        ("pool", "hidden", "pooler_output"),
    ):
        if getattr(model.head, ours, None) is not None and model.config.task == task:
            said.append(output[name])
    return torch.cat([x[0].flatten() for x in said])
