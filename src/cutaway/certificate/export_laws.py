"""What goes out is what is here: the model in the Hugging Face layout, read again by us and by `transformers`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.certificate.entry import Measure, NotMeasured, difference
from cutaway.certificate.subject import PLACEWISE, Subject, answers, besides, few_of, together
from cutaway.checkpoints import load
from cutaway.files import read_json
from cutaway.model.model import Model

# what their architectures call it, in the order of `subject.answers`
SCORES = ("prediction_logits", "logits", "last_hidden_state")


def again_is_native(subject: Subject) -> Measure:
    """Out and in again, nothing is lost. Held against each other is what the heads say: some layouts put the axes of
    the hidden states in another order."""
    again = load(subject.exported, dtype=subject.model.dtype, device=subject.model.device)
    there, here = (
        together(model, subject.batch, long=subject.asked.long, scores=True) for model in (again, subject.model)
    )
    return Measure(value=difference(there, here), inputs=subject.asked.inputs)


def peer_is_native(subject: Subject) -> Measure:
    """`transformers` computes the same from the exported folder."""
    if find_spec("transformers") is None:
        raise NotMeasured("extra missing: transformers")
    model, asked = subject.model, subject.asked
    theirs = _load(subject.exported, model)
    found = [_answer(theirs, subject, i) for i in range(len(asked))]
    ours = subject.alone
    if asked.long:  # what they call the last hidden state is not the same in every family
        ours = [answers(model, hidden, None, long=True, scores=True)[0] for hidden in subject.hidden_alone]
    return Measure(value=difference(ours, found), inputs=asked.inputs)


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
def _answer(theirs: Any, subject: Subject, i: int) -> Tensor:
    """Alone, so that nothing depends on how they pad."""
    asked, device = subject.asked, subject.model.device
    if asked.pictures is not None:
        output = theirs(pixel_values=asked.pictures[i : i + 1])
    else:
        ids = torch.tensor([asked.rows[i]], device=device)
        more = {"attention_mask": torch.ones_like(ids)}
        if asked.targets:
            more["decoder_input_ids"] = torch.tensor([asked.targets[i]], device=device)
        if asked.segments:
            more["token_type_ids"] = torch.tensor([asked.segments[i]], device=device)
        output = theirs(input_ids=ids, **more)
    said = [next(output[name] for name in SCORES if output.get(name) is not None)]
    if asked.long and subject.model.config.task in PLACEWISE:
        said = [said[0][:, few_of(said[0].shape[1])]]
    said += [output[name] for _, name in besides(subject.model)]
    return torch.cat([x[0].flatten() for x in said])
