"""A compiled model keeps chosen positions, and no bit of its output changes."""

import torch
from helpers.tiny_models import close, inputs, tiny

from cutaway.model.tap import watch


def test_some_positions_of_a_compiled_model() -> None:
    torch.compiler.reset()
    model, given = tiny("gpt2", dtype=torch.float32), inputs("gpt2")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        plain = compiled(*given)
        with watch(compiled, "*", positions=[-1, 0]) as seen:
            assert torch.equal(compiled(*given), plain)
        with watch(model, "*", positions=[-1, 0]) as expected:
            model(*given)
    assert set(seen) == set(expected)
    assert all(close(seen[tap], expected[tap]) for tap in expected)
