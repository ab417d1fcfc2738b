"""The laws of the parts on a GPU, and a decoding step captured as a CUDA graph. No pytest here: see run.py."""

import subprocess
import sys

import torch
from helpers.tiny_models import ALL, DECODERS, READERS, TRANSLATORS, close, inputs, some_ids, tiny
from torch import Tensor

from cutaway.model.attention import attention
from cutaway.model.cache import Cache
from cutaway.model.kernels.attend import attend
from cutaway.model.masks import CAUSAL, EVERYWHERE, Mask
from cutaway.model.model import DecoderModel, EncoderDecoderModel, Model
from cutaway.model.tap import edit, tap_names, watch

GPU = "cuda"
torch.backends.cuda.matmul.allow_tf32 = False


def on_gpu(name: str, **changes: object) -> tuple[Model, tuple[Tensor, ...]]:
    model = tiny(name, dtype=torch.float32, **changes).to(GPU)
    return model, tuple(x.to(GPU) for x in inputs(name, dtype=torch.float32))


def test_every_family_gives_the_cpus_numbers() -> None:
    for name in ALL:
        model, given = on_gpu(name)
        expected = tiny(name, dtype=torch.float32)(*inputs(name, dtype=torch.float32))
        assert close(model(*given).cpu(), expected), name


def test_fused_equals_explicit_and_a_query_that_may_look_nowhere_gives_zeros() -> None:
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        may_look = torch.rand(2, 1, 40, 40, device=GPU) > 0.5
        may_look[0, 0, 3] = False
        for mask in (EVERYWHERE, CAUSAL, Mask(may_look), Mask(may_look, causal=True)):
            for n_kv_heads in (4, 2):
                q, k, v = (torch.randn(2, n, 40, 32, device=GPU, dtype=dtype) for n in (4, n_kv_heads, n_kv_heads))
                q, k, v = (x.requires_grad_() for x in (q, k, v))
                ways = []
                for way in (attention, attend):
                    out = way(q, k, v, mask)
                    ways.append((out, *torch.autograd.grad(out.float().sin().sum(), (q, k, v))))
                for plain, fused in zip(*ways, strict=True):
                    assert torch.isfinite(fused).all(), (dtype, mask.causal)
                    assert (plain - fused).abs().max() <= tolerance * plain.abs().max().clamp(min=1)
                if mask.may_look is not None:
                    assert (ways[1][0][0, :, 3] == 0).all(), dtype


def test_gradients_stay_numbers_where_every_score_of_a_query_is_low() -> None:
    """cuDNN's kernel gave NaN for 64 and 192 places with a mask: batches with filler rows were lost without a word."""
    torch.manual_seed(0)
    for places in (64, 128, 192):
        q, k, v = (torch.randn(2, 4, places, 64, device=GPU, dtype=torch.bfloat16) for _ in "qkv")
        q, k = q + 10, k - 10  # scores near −800
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        rows = torch.ones(2, 1, places, places, dtype=torch.bool, device=GPU)
        rows[1] = False  # a filler row
        out = attend(q, k, v, Mask(rows))
        for gradient in torch.autograd.grad(out.float().sin().sum(), (q, k, v)):
            assert gradient.isfinite().all(), places


def test_fused_equals_explicit_with_a_bias_too() -> None:
    torch.manual_seed(0)  # T5's: a table of floats with -inf in it, and queries that may look nowhere
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        may_look = torch.rand(2, 1, 40, 40, device=GPU) > 0.5
        may_look[0, 0, 3] = False
        for mask in (EVERYWHERE, CAUSAL, Mask(may_look), Mask(may_look, causal=True)):
            q, k, v = (torch.randn(2, 4, 40, 32, device=GPU, dtype=dtype) for _ in "qkv")
            bias = torch.randn(1, 4, 40, 40, device=GPU, dtype=dtype)
            q, k, v, bias = (x.requires_grad_() for x in (q * 32**-0.5, k, v, bias))  # small, as T5 draws its queries
            ways = []
            for way in (attention, attend):
                out = way(q, k, v, mask, bias=bias, scale=1.0)
                ways.append((out, *torch.autograd.grad(out.float().sin().sum(), (q, k, v, bias))))
            for plain, fused in zip(*ways, strict=True):
                assert torch.isfinite(fused).all(), (dtype, mask.causal)
                assert (plain - fused).abs().max() <= tolerance * plain.abs().max().clamp(min=1), (dtype, mask.causal)
            if mask.may_look is not None:
                assert (ways[1][0][0, :, 3] == 0).all(), dtype


def test_garbage_in_padded_places_changes_no_bit() -> None:
    for name in READERS:
        model, (ids,) = on_gpu(name)
        real = torch.ones_like(ids, dtype=torch.bool)
        real[0, 4:] = False
        other = torch.where(real, ids, some_ids(*ids.shape, seed=9).to(GPU))
        assert torch.equal(model(ids, real=real)[real], model(other, real=real)[real]), name


def test_a_row_of_only_padding_gives_no_nan() -> None:
    for name in READERS:
        model, (ids,) = on_gpu(name)
        real = torch.ones_like(ids, dtype=torch.bool)
        real[1] = False
        out = model(ids, real=real)
        out[real].square().sum().backward()
        assert torch.isfinite(out).all(), name
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None), name


def test_garbage_in_a_padded_source_changes_no_bit() -> None:
    for name in TRANSLATORS:
        model, (source, target) = on_gpu(name)
        real = torch.ones_like(source, dtype=torch.bool)
        real[0, 4:] = False
        other = torch.where(real, source, some_ids(*source.shape, seed=9).to(GPU))
        assert not torch.equal(other, source)
        assert torch.equal(model(source, target, source_real=real), model(other, target, source_real=real)), name


def test_a_source_or_a_target_of_only_padding_gives_no_nan() -> None:
    for name in TRANSLATORS:
        for empty in ("source_real", "real"):
            model, (source, target) = on_gpu(name)
            real = torch.ones_like(source if empty == "source_real" else target, dtype=torch.bool)
            real[1] = False
            out = model(source, target, **{empty: real})
            (out if empty == "source_real" else out[real]).square().sum().backward()
            assert torch.isfinite(out).all(), (name, empty)
            assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None), (name, empty)


def test_watching_everything_changes_no_bit() -> None:
    for name in ALL:
        model, given = on_gpu(name)
        with torch.no_grad():
            plain = model(*given)
            with watch(model, "*") as seen:
                assert torch.equal(model(*given), plain), name
        assert set(seen) == set(tap_names(model))


def test_a_compiled_model_is_watched_and_its_numbers_stay() -> None:
    # close, not equal: the compiler fuses a watched graph in another way, and its sums round differently
    for name in ("gpt2", "transformer", "llama"):
        torch.compiler.reset()
        model, given = on_gpu(name)
        with torch.no_grad():
            compiled = torch.compile(model, fullgraph=True)
            plain = compiled(*given)
            with watch(compiled, "*.pattern") as seen:
                assert close(compiled(*given), plain), name
            with watch(model, "*.pattern") as expected:
                assert close(plain, model(*given)), name
        assert all(close(seen[tap], expected[tap]) for tap in expected), name


def captured(step: "torch.nn.Module", ids: Tensor, **more: object) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The step as a graph, after the warm-up that capturing needs. The warm-up is forgotten by the caller."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step(ids, **more)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(ids, **more)
    return graph, out


def replayed(model: DecoderModel, ids: Tensor, cache: Cache, prompt: int) -> Tensor:
    """Reads the prompt, then the rest token by token through one captured step."""
    read = model.decode if isinstance(model, EncoderDecoderModel) else model.hidden
    token = ids[:, :1].clone()
    graph, out = captured(read, token, cache=cache)
    cache.clear()
    read(ids[:, :prompt], cache=cache)
    steps = []
    for i in range(prompt, ids.shape[1]):
        token.copy_(ids[:, i : i + 1])
        graph.replay()
        steps.append(out.clone())
    return model.head(torch.cat(steps, dim=1))


def test_a_captured_step_gives_the_numbers_of_a_full_pass() -> None:
    for name in DECODERS:
        model, (ids,) = on_gpu(name)
        assert isinstance(model, DecoderModel)
        with torch.no_grad():
            steps = replayed(model, ids, model.new_cache(len(ids), 16), 3)
            assert close(steps, model(ids)[:, 3:]), name


def test_a_captured_step_of_a_translation() -> None:
    for name in TRANSLATORS:
        model, (source, target) = on_gpu(name)
        assert isinstance(model, EncoderDecoderModel)
        real = torch.ones_like(source, dtype=torch.bool)
        real[0, 4:] = False
        with torch.no_grad():
            cache = model.new_memory_cache(model.encode(source, real), real, 16)
            steps = replayed(model, target, cache, 2)
            assert close(steps, model(source, target, source_real=real)[:, 2:]), name


def test_rows_of_different_lengths_read_on_side_by_side() -> None:
    for name in DECODERS:
        model, (ids,) = on_gpu(name)
        assert isinstance(model, DecoderModel)
        more = some_ids(2, 3, seed=5).to(GPU)
        real = torch.ones_like(ids, dtype=torch.bool)
        real[0, :4] = False
        with torch.no_grad():
            cache = model.new_cache(2, 16)
            model(ids, real=real, cache=cache)
            steps = torch.cat([model(more[:, i : i + 1], cache=cache) for i in range(3)], dim=1)
            alone = model(torch.cat([ids[0, 4:], more[0]])[None])[0, -3:]
        assert close(steps[0], alone), name


def test_bfloat16_models_run_and_stay_near() -> None:
    for name in ALL:
        model, given = on_gpu(name)
        exact = model(*given)
        near = model.bfloat16()(*(x.bfloat16() if x.is_floating_point() else x for x in given))
        assert (near - exact).abs().max() < 0.1 * exact.abs().max(), name


def test_an_edited_pattern_takes_the_explicit_path() -> None:
    model, (ids,) = on_gpu("gpt2")
    with torch.no_grad(), edit(model, {"*.pattern": lambda pattern: pattern}):
        explicit = model(ids)
    assert close(explicit, model(ids))


def test_fault_15_an_id_outside_the_vocabulary_traps_and_never_reads_beyond() -> None:
    code = (
        "import torch; from tiny import tiny; model = tiny('gpt2').cuda(); "
        "model(torch.tensor([[1, 10**6]]).cuda()); torch.cuda.synchronize()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode != 0
    assert "device-side assert" in ended.stderr
