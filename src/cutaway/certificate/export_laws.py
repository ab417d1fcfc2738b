"""The laws of exports: the model in the Hugging Face format gives the same results, here and in `transformers`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.certificate.entry import Measure, NotMeasured, difference
from cutaway.certificate.subject import BY_POSITION, Subject, answers, batch_answers, other_outputs, some_positions
from cutaway.checkpoints import load
from cutaway.files import read_json
from cutaway.model.model import Model

# names of the first output in `transformers`, in the order of preference
SCORES = ("prediction_logits", "logits", "last_hidden_state")


def export_is_native(subject: Subject) -> Measure:
    """The exported model, read by us, gives the same results. Only outputs of heads are compared, because some formats
    order the axes of hidden states in another way."""
    again = load(subject.exported, dtype=subject.model.dtype, device=subject.model.device)
    there, here = (
        batch_answers(model, subject.batch, long=subject.inputs.long, scores=True) for model in (again, subject.model)
    )
    return Measure(value=difference(there, here), inputs=subject.inputs.description)


def transformers_is_native(subject: Subject) -> Measure:
    """The exported model, read by `transformers`, gives the same results."""
    if find_spec("transformers") is None:
        raise NotMeasured("the package transformers is not installed")
    model, inputs = subject.model, subject.inputs
    theirs = _load(subject.exported, model)
    found = [_answer(theirs, subject, i) for i in range(len(inputs))]
    ours = subject.single
    if inputs.long:  # their last hidden state is not the same thing in every family
        ours = [answers(model, hidden, None, long=True, scores=True)[0] for hidden in subject.hidden_single]
    return Measure(value=difference(ours, found), inputs=inputs.description)


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
    """The results of row i by itself, so that nothing depends on how `transformers` pads."""
    inputs, device = subject.inputs, subject.model.device
    if inputs.pictures is not None:
        output = theirs(pixel_values=inputs.pictures[i : i + 1])
    else:
        ids = torch.tensor([inputs.rows[i]], device=device)
        more = {"attention_mask": torch.ones_like(ids)}
        if inputs.targets:
            more["decoder_input_ids"] = torch.tensor([inputs.targets[i]], device=device)
        if inputs.segments:
            more["token_type_ids"] = torch.tensor([inputs.segments[i]], device=device)
        output = theirs(input_ids=ids, **more)
    outputs = [next(output[name] for name in SCORES if output.get(name) is not None)]
    if inputs.long and subject.model.config.task in BY_POSITION:
        outputs = [outputs[0][:, some_positions(outputs[0].shape[1])]]
    outputs += [output[name] for _, name in other_outputs(subject.model)]
    return torch.cat([x[0].flatten() for x in outputs])
