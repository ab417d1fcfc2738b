"""The certificate's line for torch.compile, where the code runs as users run it."""

import torch
from tiny import tiny

from cutaway.certificate import laws
from cutaway.certificate.asked import questions
from cutaway.certificate.entry import judged


def test_a_compiled_model_passes() -> None:
    model = tiny("gpt2", dtype=torch.float32, n_layers=1)
    entry = judged("compiled = eager", lambda: laws.compiled_is_eager(model, questions(model, None, 0)))
    assert entry.verdict == "passed", entry
