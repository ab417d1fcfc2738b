"""A block in one call gives the bits of its parts, one after another, and stands aside where somebody looks."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import cutaway
from cutaway import edit, watch
from cutaway.decoding import Job, run_jobs
from cutaway.model.kernels import cpu, step_cpu
from cutaway.model.model import EncoderDecoderModel
from cutaway.model.precision import to_int8

pytestmark = pytest.mark.skipif(not cpu.supported(), reason="this CPU has no AVX-512 with VNNI")
START, END, VOCAB = 1, 2, 90
SIZE = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 64, "n_heads": 4, "d_ff": 96, "vocab_size": VOCAB}
#         source, limit
LENGTHS = [(7, 9), (1, 12), (30, 5), (33, 20), (12, 1), (31, 17), (40, 8), (2, 3)]


def translator(wiring: str = "pre_norm", seed: int = 3, **changes: Any) -> EncoderDecoderModel:
    """With biases, scales and norms that are nowhere 0 or 1."""
    ids = {"start_id": START, "end_ids": (END,)}
    model = cutaway.build("transformer-tiny", wiring=wiring, seed=seed, **ids | SIZE | changes)
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=draw)
    return to_int8(model).eval()


def jobs() -> list[Job]:
    draw = torch.Generator().manual_seed(5)
    return [
        Job(prompt=[START], source=torch.randint(3, VOCAB, (n,), generator=draw).tolist(), limit=limit)
        for n, limit in LENGTHS
    ]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tokens of the passes that are taken in one call."""
    seen: list[int] = []
    take = step_cpu.take

    def spied(plan: Any, x: torch.Tensor, *more: Any) -> torch.Tensor:
        seen.append(x.shape[0] * x.shape[1])
        return take(plan, x, *more)

    monkeypatch.setattr(step_cpu, "take", spied)
    return seen


def by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_cpu, "fits", lambda *given: False)


@pytest.mark.parametrize("wiring", ["pre_norm", "post_norm"])
@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"beam": 4}, {"beam": 4, "prune": 0.5}, {"beam": 6, "rows": 2}], ids=str
)
def test_texts_and_scores_have_the_same_bits(
    wiring: str, options: dict[str, Any], taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = translator(wiring)
    found = run_jobs(model, jobs(), **options)
    assert len(taken) >= 2 * max(limit for _, limit in LENGTHS)  # every step of both blocks
    by_parts(monkeypatch)
    assert run_jobs(model, jobs(), **options) == found


@pytest.mark.parametrize("wiring", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("length", [1, 5, 32, 33])
@pytest.mark.parametrize("padded", [False, True])
@torch.inference_mode()
def test_memories_have_the_same_bits(
    wiring: str, length: int, padded: bool, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = translator(wiring)
    source = torch.randint(3, VOCAB, (3, length))
    real = torch.arange(length)[None] < torch.tensor([length, 1, max(1, length // 2)])[:, None] if padded else None
    memory = model.encode(source, real)
    assert bool(taken) == (length <= 32)
    by_parts(monkeypatch)
    assert torch.equal(model.encode(source, real), memory)


@torch.inference_mode()
def test_many_tokens_are_shared_by_threads(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = translator(d_model=256, n_heads=4, d_ff=1024)
    source = torch.randint(3, VOCAB, (64, 32))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        memory = model.encode(source)
    finally:
        torch.set_num_threads(before)
    assert taken
    by_parts(monkeypatch)
    assert torch.equal(model.encode(source), memory)


@torch.inference_mode()
def test_what_is_not_a_number_stays_none(taken: list[int]) -> None:
    model = translator()
    model.encoder[0].feed_forward.up.bias[3] = float("nan")
    model.encoder[0].feed_forward.up._panels = None
    assert model.encode(torch.tensor([[5, 6, 7]])).isnan().all()
    assert taken


@torch.inference_mode()
def test_weights_that_change_are_read_again(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = translator(), translator(seed=4)
    source = torch.tensor([[5, 6, 7, 8]])
    first = model.encode(source)
    model.load_state_dict(other.state_dict())
    loaded = model.encode(source)
    assert not torch.equal(first, loaded)
    assert torch.equal(loaded, other.encode(source))
    model.encoder[0].attention_norm.weight = torch.nn.Parameter(model.encoder[0].attention_norm.weight * 2)
    scaled = model.encode(source)
    assert not torch.equal(loaded, scaled)
    model.encoder[1].feed_forward_norm.bias.add_(1.0)  # in place
    moved = model.encode(source)
    assert not torch.equal(scaled, moved)
    assert len(taken) == 10
    by_parts(monkeypatch)
    assert torch.equal(model.encode(source), moved)


@torch.inference_mode()
def test_parts_that_are_replaced_are_read_again(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = translator(), translator(seed=4)
    source, block, new = torch.tensor([[5, 6, 7, 8]]), model.encoder[0], other.encoder[0]
    found = [model.encode(source)]
    for change in (
        lambda: setattr(block.feed_forward, "up", new.feed_forward.up),
        lambda: setattr(block.attention, "output", new.attention.output),
        lambda: setattr(block, "feed_forward_norm", new.feed_forward_norm),
        lambda: setattr(block.attention_norm, "eps", 0.5),
        lambda: setattr(block.attention, "scale", 0.9),
    ):
        change()
        found.append(model.encode(source))
        assert not torch.equal(found[-1], found[-2])
    assert len(taken) == 2 * len(found)
    block.feed_forward.activation = torch.tanh  # which the kernel does not have
    assert not torch.equal(model.encode(source), found[-1])
    assert len(taken) == 2 * len(found) + 1
    block.feed_forward.activation = torch.nn.functional.relu
    by_parts(monkeypatch)
    assert torch.equal(model.encode(source), found[-1])


def test_who_looks_sees_every_part(taken: list[int]) -> None:
    """Taps, edits and hooks."""
    model = translator()
    source = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        plain = model.encode(source)
        n = len(taken)
        assert n == 2
        with watch(model, "encoder.1.feed_forward.features") as seen:
            assert torch.equal(model.encode(source), plain)
        assert seen["encoder.1.feed_forward.features"].shape == (1, 4, 96)
        with edit(model, {"encoder.1.attention.heads": torch.zeros_like}):
            assert not torch.equal(model.encode(source), plain)
        assert len(taken) == n
        called: list[str] = []
        hook = model.encoder[0].attention.output.register_forward_hook(lambda *given: called.append("output"))
        assert torch.equal(model.encode(source), plain)
        assert called == ["output"]
        assert len(taken) == n + 1  # the other block
        hook.remove()
        model.encode(source)
        assert len(taken) == n + 3
    model.encode(source)  # with gradients
    assert len(taken) == n + 3


@pytest.mark.parametrize("name", ["gelu", "more kv heads", "rotary", "fp32"])
@torch.inference_mode()
def test_other_blocks_go_part_by_part(name: str, taken: list[int]) -> None:
    if name == "gelu":
        model: Any = translator(activation="gelu")
    elif name == "rotary":
        model = translator(positions="rotary")
    elif name == "fp32":
        model = cutaway.build("transformer-tiny", start_id=START, end_ids=(END,), seed=3, **SIZE).eval()
    else:
        model = to_int8(
            cutaway.build("stories15m", n_layers=1, d_model=64, n_heads=4, n_kv_heads=2, d_ff=96, vocab_size=VOCAB)
        )
        model.eval()(torch.tensor([[5, 6]]))
        assert not taken
        return
    model.encode(torch.tensor([[5, 6, 7]]))
    assert not taken


@torch.inference_mode()
def test_copies_and_pickles_have_plans_of_their_own(taken: list[int]) -> None:
    model = translator()
    source = torch.tensor([[5, 6, 7, 8]])
    expected = model.encode(source)
    copied = copy.deepcopy(model)
    loaded = pickle.load(io.BytesIO(pickle.dumps(model)))
    for other in (copied, loaded):
        other.encoder[0].attention_norm.weight.mul_(3.0)
        assert not torch.equal(other.encode(source), expected)
    assert torch.equal(model.encode(source), expected)
    assert len(taken) == 8


@pytest.mark.parametrize("wiring", ["pre_norm", "post_norm"])
@torch.inference_mode()
def test_what_a_block_reads_stays_as_it_is(wiring: str, taken: list[int]) -> None:
    x = torch.randn(2, 5, 64)
    before = x.clone()
    translator(wiring).encoder[0](x)
    assert taken
    assert torch.equal(x, before)
