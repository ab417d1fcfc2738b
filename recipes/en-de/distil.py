"""What several teachers find best: each translates, all score every candidate, and the best mean score is kept.

    python recipes/en-de/distil.py de build/en-de/more.en build/en-de/more.tsv TEACHER…

Writes a table with the columns en and de. A student learns from it what its teachers agree on (Kim & Rush 2016).
"""

import sys
from pathlib import Path

import torch

import cutaway
from cutaway.decoding.engine import side_by_side
from cutaway.decoding.precision import with_precision
from cutaway.decoding.translate import candidates, encode_sources
from cutaway.model.model import EncoderDecoderModel
from cutaway.tokens import Tokenizer

AT_ONCE = 1024  # pairs that are scored together
WORST = -0.35  # mean log p of a token; of 40 sentences from books, read one by one, most are wrong below it


def main() -> None:
    to, sources, out, teachers = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = list(dict.fromkeys(sources.read_text(encoding="utf-8").splitlines()))
    found: list[dict[str, float]] = [{} for _ in texts]
    loaded = []
    for folder in teachers:
        model = with_precision(cutaway.load(folder, device=device), "bf16" if device == "cuda" else "fp32")
        assert isinstance(model, EncoderDecoderModel)
        tokenizer = cutaway.load_tokenizer(folder)
        loaded.append((model, tokenizer))
        tag = tokenizer.tag_id(to)
        for each, its in zip(
            found, candidates(model, tokenizer, texts, tag=tag, beam=5, n_best=3, rows=192), strict=True
        ):
            each.update(dict.fromkeys((one.text.strip() for one in its), 0.0))
    pairs = [(i, text) for i, each in enumerate(found) for text in each if text]
    for model, tokenizer in loaded:
        for (i, text), score in zip(pairs, scores(model, tokenizer, texts, pairs, to), strict=True):
            found[i][text] += score / len(loaded)
    kept = 0
    with out.open("w", encoding="utf-8") as file:
        file.write("en\tde\n")
        for text, each in zip(texts, found, strict=True):
            best = max(each, key=each.__getitem__, default="")
            if best and each[best] > WORST and "\t" not in text:
                kept += 1
                file.write(f"{text}\t{best}\n" if to == "de" else f"{best}\t{text}\n")
    print(f"{kept:,} of {len(texts):,} sentences")


@torch.inference_mode()
def scores(
    model: EncoderDecoderModel, tokenizer: Tokenizer, texts: list[str], pairs: list[tuple[int, str]], to: str
) -> list[float]:
    """The mean log p of each candidate's tokens, its end among them."""
    assert model.config.end_ids
    assert model.config.start_id is not None
    start, end = model.config.start_id, model.config.end_ids[0]
    sources = encode_sources(model, tokenizer, texts, tokenizer.tag_id(to), end)
    targets = [[*ids, end] for ids in tokenizer.encode_batch([text for _, text in pairs], special=False)]
    order = sorted(range(len(pairs)), key=lambda n: (len(targets[n]), len(sources[pairs[n][0]])))
    result = [0.0] * len(pairs)
    for first in range(0, len(order), AT_ONCE):
        some = order[first : first + AT_ONCE]
        source, source_real = (t.to(model.device) for t in side_by_side([sources[pairs[n][0]] for n in some]))
        target, real = (t.to(model.device) for t in side_by_side([targets[n] for n in some]))
        read = torch.cat([torch.full_like(target[:, :1], start), target[:, :-1]], dim=1)
        log_p = model(source, read, source_real=source_real).float().log_softmax(-1)
        said = log_p.gather(-1, target[:, :, None]).squeeze(-1) * real
        for n, score in zip(some, (said.sum(1) / real.sum(1)).tolist(), strict=True):
            result[n] = score
    return result


if __name__ == "__main__":
    main()
