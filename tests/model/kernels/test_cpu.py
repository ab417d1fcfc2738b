"""Our kernels for the CPU give what PyTorch gives: products of whole numbers to the bit, the rest to roundings."""

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.tiny_models import tiny
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from cutaway.decoding.engine.run import run_jobs
from cutaway.decoding.search.search import Job
from cutaway.model.attention import CrossAttention, SelfAttention, attention
from cutaway.model.cache import LARGE, Cache, zeros
from cutaway.model.kernels import cpu
from cutaway.model.kernels.int8 import Int8Linear
from cutaway.model.kernels.live_rows import Packing
from cutaway.model.masks import Mask
from cutaway.model.norms import LayerNorm
from cutaway.model.precision import to_int8
from cutaway.model.tap import edit, watch

here = pytest.mark.skipif(not cpu.supported(), reason="this CPU has no AVX-512 with VNNI")
NEVER = float("-inf")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on PyTorch does it all."""
    return lambda: monkeypatch.setattr(cpu, "library", lambda: None)


@here
@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 48])
@pytest.mark.parametrize(("n_in", "n_out", "bias"), [(64, 64, True), (20, 70, True), (132, 200, False), (4, 1, True)])
def test_a_linear_map_has_the_same_bits(
    rows: int, n_in: int, n_out: int, bias: bool, without: Callable[[], None]
) -> None:
    part = Int8Linear(torch.randn(n_out, n_in), torch.randn(n_out) if bias else None)
    x = torch.randn(rows, n_in) * torch.logspace(-30, 30, rows)[:, None]
    x[rows // 2] = 0.0
    found = part(x)
    without()
    assert torch.equal(found, part(x))


def asked(batch: int, heads: int, each: int, d_head: int, slots: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query = torch.randn(batch, each, heads * d_head).unflatten(2, (heads, d_head)).transpose(1, 2)
    key, value = torch.randn(2, batch, heads, slots + 3, d_head)[:, :, :, :slots].unbind()
    may_look = torch.rand(batch, 1, each, slots) < 0.5
    may_look[..., 1] = True
    return query, key, value, may_look


@here
@torch.inference_mode()
@pytest.mark.parametrize("d_head", cpu.WIDTHS)
@pytest.mark.parametrize(("batch", "each", "slots"), [(1, 1, 2), (3, 4, 17), (2, 1, 40), (1, 5, 16)])
def test_looking_up_is_the_formula(d_head: int, batch: int, each: int, slots: int) -> None:
    query, key, value, may_look = asked(batch, 3, each, d_head, slots)
    for table in (may_look, may_look[:1], may_look[:, :, :1], None):
        mask = Mask(table)
        added = None if table is None else mask.written_out(torch.float32).added
        found = cpu.attend(query, key, value, added, d_head**-0.5, None)
        torch.testing.assert_close(found, attention(query, key, value, mask, scale=d_head**-0.5), atol=2e-6, rtol=1e-5)
    others = [query.contiguous(), query[:, :, 1:]]  # as a rotation leaves them; some of a row's queries
    for some in others[: 1 + (each > 1)]:
        found = cpu.attend(some, key, value, None, d_head**-0.5, None)
        torch.testing.assert_close(found, attention(some, key, value), atol=2e-6, rtol=1e-5)


@here
@torch.inference_mode()
def test_a_query_that_may_look_nowhere_finds_nothing_and_what_nobody_sees_is_not_read() -> None:
    query, key, value, may_look = asked(2, 2, 3, 16, 9)
    may_look[0, 0, 1], may_look[..., 5] = False, False
    key[:, :, 5], value[:, :, 5] = float("nan"), float("inf")
    found = cpu.attend(query, key, value, Mask(may_look).written_out(torch.float32).added, 0.25, None)
    assert torch.isfinite(found).all()
    assert not found[0, :, 1].any()
    assert found[0, :, 2].all()


@here
@torch.inference_mode()
def test_packed_queries_look_where_their_rows_are() -> None:
    query, key, value, may_look = asked(3, 2, 4, 32, 11)
    packing = Packing.of(torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0]]).bool())
    assert packing is not None
    packed = packing.gather(query.transpose(1, 2))[None].transpose(1, 2)
    added = Mask(may_look).written_out(torch.float32).added
    found = cpu.attend(packed, key, value, added, 0.25, packing)
    each = cpu.attend(query, key, value, added, 0.25, None)
    assert torch.equal(found[0].transpose(0, 1), packing.gather(each.transpose(1, 2)))


@here
@torch.inference_mode()
def test_new_tokens_go_where_they_belong() -> None:
    store, new = torch.zeros(3, 2, 9, 16), torch.randn(3, 2, 4, 16)
    slots = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8], [2, 4, 1, 8]])
    expected = store.clone()
    expected[torch.arange(3)[:, None], :, slots] = new.transpose(1, 2)
    for given in (new, new.transpose(1, 2).contiguous().transpose(1, 2)):
        found = store.clone()
        assert cpu.appends(found, given)
        cpu.append(found, given, slots, None)
        assert torch.equal(found, expected)


@here
@torch.inference_mode()
def test_what_is_kept_moves_to_the_front_and_rows_take_each_others_place() -> None:
    store = torch.randn(4, 2, 8, 16)
    before = store.clone()
    rows, slots = torch.tensor([3, 1]), torch.tensor([[0, 2, 7], [4, 5, 0]])
    cpu.keep(store, rows, rows, torch.tensor([3, 2]), slots)
    assert torch.equal(store[3, :, :3], before[3][:, [0, 2, 7]])
    assert torch.equal(store[1, :, :2], before[1][:, [4, 5]])
    assert torch.equal(store[1, :, 2:], before[1, :, 2:])
    assert torch.equal(store[[0, 2]], before[[0, 2]])
    cpu.keep(store, torch.tensor([2]), torch.tensor([0]), torch.tensor([5]))
    assert torch.equal(store[0, :, :5], before[2, :, :5])
    assert torch.equal(store[0, :, 5:], before[0, :, 5:])


@here
@torch.inference_mode()
@pytest.mark.parametrize("vocab", [1, 5, 16, 100, 1000, 8001])
def test_the_likeliest_are_those_of_log_softmax(vocab: int) -> None:
    logits, k = torch.randn(7, vocab) * 20, min(8, vocab)
    logits[1], logits[2, vocab // 2 :] = -1e30, NEVER
    logits[2, 0] = 3.0
    log_p, ids = cpu.likeliest(logits, k)
    expected = logits.log_softmax(dim=-1)
    torch.testing.assert_close(log_p, expected.topk(k).values, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(expected.gather(1, ids), log_p, atol=1e-5, rtol=1e-6)
    assert all(len(set(row)) == k for row in ids.tolist())
    assert ids[1].tolist() == list(range(k)), "of equals the first"


@here
@torch.inference_mode()
def test_scores_that_are_no_numbers_stay_none() -> None:
    logits = torch.randn(2, 100)
    logits[1, 40] = float("nan")
    log_p, _ = cpu.likeliest(logits, 3)
    assert torch.isfinite(log_p[0]).all()
    assert log_p[1].isnan().all()


@here
@torch.inference_mode()
def test_a_norm_is_the_norm(without: Callable[[], None]) -> None:
    norm, x = LayerNorm(48), torch.randn(5, 3, 48) * 10 + 40
    norm.weight.copy_(torch.randn(48))
    norm.bias.copy_(torch.randn(48))
    found = norm(x)
    without()
    torch.testing.assert_close(found, norm(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernels", [True, False])
@torch.inference_mode()
def test_a_row_moves_whole_and_no_more_than_it(kernels: bool, without: Callable[[], None]) -> None:
    if not kernels:
        without()
    cache = Cache.empty(1, 3, 5, 2, 16)
    for store in (*cache.keys, *cache.values):
        store.normal_()
    before = [store.clone() for store in (*cache.keys, *cache.values)]
    cache.move([2], [0], slots=[4])
    for store, then in zip((*cache.keys, *cache.values), before, strict=True):
        torch.testing.assert_close(store[0, :, :4], then[2, :, :4], rtol=0, atol=0)
        torch.testing.assert_close(store[0, :, 4:], then[0, :, 4:], rtol=0, atol=0)
        torch.testing.assert_close(store[1:], then[1:], rtol=0, atol=0)


@here
@pytest.mark.parametrize("prune", [None, 2.0])
@pytest.mark.parametrize("int8", [True, False])
def test_a_beam_writes_the_same_with_and_without(int8: bool, prune: float | None, without: Callable[[], None]) -> None:
    torch.manual_seed(0)
    model = tiny("transformer", dtype=torch.float32, d_model=64)
    model = to_int8(model) if int8 else model
    jobs = [Job(prompt=[1], source=[3, 4 + n % 5, 5 + n % 7], limit=4 + n % 6) for n in range(9)]
    search = {"beam": 3, "end_ids": (2,), "prune": prune}
    found = run_jobs(model, jobs, **search)
    without()
    for ours, theirs in zip(found, run_jobs(model, jobs, **search), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        torch.testing.assert_close([one.score for one in ours], [one.score for one in theirs], atol=1e-4, rtol=1e-4)


@here
def test_gradients_and_edits_take_the_other_way_and_reading_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, ours = [], cpu.attend

    def counted(*given: Any) -> Tensor:
        calls.append(given)
        return ours(*given)

    monkeypatch.setattr(cpu, "attend", counted)
    model = tiny("bert", dtype=torch.float32, d_model=64)
    ids = torch.tensor([[3, 4, 5]])
    model(ids).sum().backward()
    assert not calls, "the kernel has no gradient"
    with torch.no_grad():
        plain = model(ids)
        assert calls
        with watch(model, "encoder.0.attention.pattern") as seen:
            assert torch.equal(model(ids), plain)
        assert seen["encoder.0.attention.pattern"].shape[-1] == 3
        with edit(model, {"encoder.0.attention.pattern": torch.zeros_like}):
            assert not torch.equal(model(ids), plain)


def test_without_a_compiler_pytorch_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(OSError, match="no-such-compiler is not installed"):
        cpu.compiled(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cpu.library.__wrapped__() is None


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(OSError, match="does not compile our kernels"):
        cpu.compiled(tmp_path)
    assert not list(tmp_path.iterdir())


@here
def test_what_was_compiled_is_found_again_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cpu.compiled(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert cpu.compiled(tmp_path) == made
    assert list(tmp_path.iterdir()) == [made]
    assert isinstance(ctypes.CDLL(str(made)).linear, object)


def test_a_setting_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_KERNELS", "0")
    assert cpu.library.__wrapped__() is None


@here
@torch.inference_mode()
def test_what_is_no_number_stays_none_in_a_product(without: Callable[[], None]) -> None:
    part, x = Int8Linear(torch.randn(8, 16), torch.randn(8)), torch.randn(3, 16)
    x[1, 5] = float("nan")
    found = part(x)
    without()
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], part(x)[[0, 2]])


@here
@torch.inference_mode()
def test_many_rows_have_the_same_bits_on_any_number_of_threads() -> None:
    cores = torch.get_num_threads()
    part, x = Int8Linear(torch.randn(1000, 512), torch.randn(1000)), torch.randn(70, 512)
    assert x.shape[0] * 512 * 1000 > 3 * cpu.SHARE
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(part(x))
    finally:
        torch.set_num_threads(cores)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@here
def test_who_watches_many_texts_sees_the_same_bits() -> None:
    """One engine of all threads then, in place of one on each."""
    torch.manual_seed(0)
    model = tiny("transformer", dtype=torch.float32, d_model=64)
    jobs = [Job(prompt=[1], source=[3 + n % 7, 4 + n % 5], limit=6) for n in range(32)]
    plain = run_jobs(model, jobs, beam=4, end_ids=(2,))
    with watch(model, "decoder.0.attention.pattern"):
        watched = run_jobs(model, jobs, beam=4, end_ids=(2,))
    assert watched == plain


@here
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_cache_of_another_precision_is_read_as_it_is(dtype: torch.dtype) -> None:
    model = tiny("gpt2", dtype=torch.float32, d_model=64)
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        cache = model.new_cache(1, 8, dtype=dtype)
        model(ids[:, :3], cache=cache)
        found = model(ids[:, 3:], cache=cache)
        torch.testing.assert_close(found, model(ids)[:, 3:], atol=5e-2, rtol=5e-2)


@here
@torch.no_grad()
def test_one_memory_for_many_rows_is_left_to_pytorch() -> None:
    part = CrossAttention(64, 4).eval()
    x, memory = torch.randn(5, 2, 64), torch.randn(1, 3, 64)
    remembered = part.remember(memory)
    torch.testing.assert_close(part(x, remembered)[4], part(x[4:], remembered)[0], atol=1e-6, rtol=1e-5)


@here
@torch.no_grad()
def test_dropout_in_training_is_left_to_pytorch() -> None:
    part = SelfAttention(64, 4, dropout=0.5).train()
    x = torch.randn(1, 5, 64)
    assert not torch.equal(part(x), part(x))
    assert torch.equal(part.eval()(x), part(x))


@here
@torch.no_grad()
def test_what_has_no_memory_or_is_traced_is_left_to_pytorch() -> None:
    norm, x = LayerNorm(32), torch.randn(3, 32)
    assert cpu.fit(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert norm(mode.from_tensor(x)).shape == (3, 32)
    traced = torch.jit.trace(norm, x)
    other = torch.randn(3, 32)
    torch.testing.assert_close(traced(other), norm(other), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.vmap(norm)(x), norm(x), atol=1e-5, rtol=1e-5)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(norm(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
        assert moved is not None


@here
@torch.no_grad()
def test_new_weights_are_packed_anew() -> None:
    part, other = Int8Linear(torch.randn(8, 16), None), Int8Linear(torch.randn(8, 16), None)
    x = torch.randn(2, 16)
    assert not torch.equal(part(x), other(x))
    part.load_state_dict(other.state_dict())
    assert torch.equal(part(x), other(x))


def test_a_compiler_may_have_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false --really")
    with pytest.raises(OSError, match="false does not compile"):
        cpu.compiled(tmp_path)


@here
def test_a_damaged_library_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cpu.compiled(cpu.cache_folder()).write_bytes(b"not a library")
    assert cpu.library.__wrapped__() is None


def test_a_system_without_large_pages_has_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(mmap.mmap):
        def madvise(self, *given: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr("cutaway.model.cache.mmap.mmap", Strict)
    assert not zeros((LARGE,), torch.float32, "cpu").any()
