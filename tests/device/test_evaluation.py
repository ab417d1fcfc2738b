"""Beam search and perplexity on a GPU: the same answers as on the CPU."""

import torch
from helpers.decode_batches import continuations, translations

from cutaway.evaluation.perplexity import surprisal
from cutaway.families import build

SIZES = {"d_model": 64, "n_heads": 4, "d_ff": 128, "vocab_size": 97, "max_len": 64}


def varied(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def texts(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([12, 3, 7, 20, 5])
    real = torch.arange(20)[None] < lengths[:, None]
    return torch.randint(97, real.shape, generator=torch.Generator().manual_seed(seed)), real


def test_beams_find_the_same_as_on_the_cpu():
    model = varied(build("transformer-tiny", seed=0, dtype=torch.float64, start_id=1, tied=False, **SIZES))
    (source, real), options = texts(), {"n": [30, 9, 25, 40, 12], "end_ids": range(5, 12)}
    for stop in (False, True, "never"):
        for penalty in (0.6, 2.0):
            rule = {"early_stopping": stop, "length_penalty": penalty}
            here = translations(model.cpu(), source, real=real, **options, **rule)
            there = translations(model.cuda(), source.cuda(), real=real.cuda(), **options, **rule)
            assert here == there
    assert len({len(text) for text in here}) > 2


def test_beams_of_a_decoder_find_the_same_as_on_the_cpu():
    model = varied(build("gpt2", seed=0, dtype=torch.float64, n_layers=2, **SIZES))
    ids, real = texts(1)
    here = continuations(model, ids, n=20, real=real, end_ids=range(5, 12))
    assert here == continuations(model.cuda(), ids.cuda(), n=20, real=real.cuda(), end_ids=range(5, 12))


def test_surprisal_is_the_same_as_on_the_cpu():
    model = varied(build("gpt2", seed=0, n_layers=2, **SIZES))
    ids, real = texts(2)
    documents = [row[its] for row, its in zip(ids, real, strict=True)] + [ids.flatten()]
    here = surprisal(model, documents, context=32, stride=8, start_id=1)
    there = surprisal(model.cuda(), documents, context=32, stride=8, start_id=1)
    half = surprisal(model, documents, context=32, stride=8, start_id=1, autocast=torch.bfloat16)
    assert (here.tokens == there.tokens).all()
    assert abs(there.total / here.total - 1) < 1e-5
    assert abs(half.total / here.total - 1) < 0.02
    assert half.total != there.total
