"""Rules against the logits processors of `transformers`: the same numbers, bit for bit, and the same hidden tokens."""

from itertools import product

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation import (
    LogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from cutaway.checkpoints import load
from cutaway.decoding import Job, run_jobs
from cutaway.decoding.rules.scores import (
    BadWords,
    LogitBias,
    MinLength,
    MinP,
    NoRepeat,
    RepetitionPenalty,
    Rule,
    Temperature,
    Text,
    TopK,
    TopP,
    in_order,
)

VOCAB, PROMPT, MOST = 20, 6, 8
ENDS = [3, 11]
WORDS = ((4,), (7,), (1, 2), (5, 6, 7), (2, 2), (9, 1), (9, 1, 4, 4))
TWINS: list[tuple[Rule, LogitsProcessor]] = [
    *((Temperature(t), TemperatureLogitsWarper(t)) for t in (0.1, 0.7, 1.0, 3.0)),
    *((TopK(k), TopKLogitsWarper(k)) for k in (1, 3, VOCAB, 2 * VOCAB)),
    *((TopP(p), TopPLogitsWarper(p)) for p in (0.01, 0.5, 0.9, 0.999)),
    *((MinP(p), MinPLogitsWarper(p)) for p in (0.0, 0.05, 0.5, 1.0)),
    *((RepetitionPenalty(p), RepetitionPenaltyLogitsProcessor(p)) for p in (0.5, 1.2, 4.0)),
    (LogitBias(((2, -100.0), (9, 2.5))), SequenceBiasLogitsProcessor([[[2], -100.0], [[9], 2.5]])),
    *((NoRepeat(n), NoRepeatNGramLogitsProcessor(n)) for n in (1, 2, 3, 4)),
    (BadWords(WORDS), NoBadWordsLogitsProcessor([list(word) for word in WORDS], eos_token_id=[19])),
    *((MinLength(n), MinNewTokensLengthLogitsProcessor(PROMPT, n, ENDS)) for n in (1, 4, 5, 8)),
    *((MinLength(n), MinLengthLogitsProcessor(PROMPT + n, ENDS)) for n in (1, 4, 5, 8)),
]


def texts(rows: int, written: int, seed: int, few: int = VOCAB) -> Text:
    """Texts of few different tokens, so that they repeat themselves; garbage where nothing is written yet."""
    ids = torch.randint(few, (rows, PROMPT + MOST), generator=torch.Generator().manual_seed(seed))
    return Text(
        prompts=ids[:, :PROMPT],
        tokens=ids[:, PROMPT:],
        starts=torch.zeros(rows, dtype=torch.long),
        written=torch.full((rows,), written),
        ends=torch.tensor(ENDS),
        runs=torch.ones(rows, dtype=torch.bool),
    )


def ids_of(text: Text) -> Tensor:
    return text.ids[:, : PROMPT + int(text.written[0])]


@pytest.mark.parametrize(("ours", "theirs"), TWINS, ids=lambda rule: str(rule) if isinstance(rule, Rule) else "")
def test_the_same_scores(ours, theirs):
    changed = 0
    for seed, spread in product(range(20), (0.1, 3.0, 30.0)):
        text = texts(6, seed % (MOST + 1), seed, few=3 + seed % (VOCAB - 3))
        scores = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread
        expected = theirs(ids_of(text), scores.clone())
        found = ours(scores.clone(), text)
        assert torch.equal(found, expected)
        changed += int((found != scores).any())
    assert changed or ours in (Temperature(1.0), TopK(VOCAB), TopK(2 * VOCAB), MinP(0.0))


def test_the_same_texts_with_all_of_them_together(tmp_path):
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=53, n_positions=40, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    theirs = GPT2LMHeadModel(config).eval()
    for parameter in theirs.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    theirs.save_pretrained(tmp_path)
    model = load(tmp_path)
    bad = [[5], [6, 7], [9, 9]]
    rules = in_order([RepetitionPenalty(1.3), NoRepeat(2), MinLength(6), BadWords(tuple(map(tuple, bad)))])
    ends = list(range(10, 20))
    for beam in (1, 3):
        prompts = torch.randint(53, (8, 5), generator=torch.Generator().manual_seed(beam))
        theirs.generation_config = GenerationConfig(
            max_new_tokens=15, num_beams=beam, eos_token_id=ends, pad_token_id=0, bad_words_ids=bad,
            repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=6,
        )  # fmt: skip
        found = theirs.generate(prompts, attention_mask=torch.ones_like(prompts))[:, 5:].tolist()
        ours, free = (
            [
                h[0].ids
                for h in run_jobs(model, [Job(prompt=ids, limit=15, rules=its) for ids in prompts.tolist()], **options)
            ]
            for its in (rules, ())
            for options in [{"beam": beam, "end_ids": ends}]
        )
        assert ours == [ids[: next((i + 1 for i, id in enumerate(ids) if id in ends), 15)] for ids in found]
        assert ours != free


def test_their_order():
    rules = [
        MinP(0.1),
        TopP(0.9),
        TopK(5),
        Temperature(0.5),
        MinLength(3),
        BadWords(WORDS),
        NoRepeat(2),
        RepetitionPenalty(2.0),
        LogitBias(((0, 3.0), (6, 2.0))),
    ]
    config = GenerationConfig(
        do_sample=True, min_p=0.1, top_p=0.9, top_k=5, temperature=0.5, min_length=3, eos_token_id=ENDS,
        bad_words_ids=[list(word) for word in WORDS], no_repeat_ngram_size=2, repetition_penalty=2.0,
        sequence_bias=[[[0], 3.0], [[6], 2.0]],
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=8, n_layer=1, n_head=1))
    model._prepare_special_tokens(config)
    theirs = model._get_logits_processor(config, input_ids_seq_length=PROMPT, logits_processor=[])
    text = texts(6, 2, 0, few=8)
    scores = torch.randn(6, VOCAB) * 3
    found = scores
    for rule in in_order(rules):
        found = rule(found, text)
    assert torch.equal(found, theirs(ids_of(text), scores))
