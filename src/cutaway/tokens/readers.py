"""The tokenizers of published folders without a tokenizer.json.

vocab.json + merges.txt    byte-level BPE: GPT-2, RoBERTa; BPE over lower-cased words: GPT
vocab.txt                  WordPiece: BERT
"""

from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from cutaway.errors import CheckpointError
from cutaway.files import MEGABYTE, naming, read_bytes, read_json
from cutaway.tokens.library_errors import damaged_tokenizer
from cutaway.tokens.pipeline import byte_level, split_merges, with_special, wordpiece
from cutaway.tokens.roles import CONFIG, stated_roles, stated_template
from cutaway.tokens.tokenizer import Tokenizer

FORMS = "tokenizer.json, vocab.txt, vocab.json with merges.txt"
UNREAD = ("tokenizer.model", "spiece.model", "source.spm", "sentencepiece.bpe.model")
WITHOUT = "to import the model without it: `--no-tokenizer`, in Python `import_model(…, tokenizer=False)`"
VOCAB_LIMIT = 64 * MEGABYTE


def older_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in the files that were usual before tokenizer.json; None if there are none."""
    tokenizer = None
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        tokenizer = _read_bpe(folder)
    elif (folder / "vocab.txt").exists():
        tokenizer = _read_wordpiece(folder)
    if tokenizer is not None:
        tokenizer.chat_template = stated_template(folder)
        return tokenizer
    for name in UNREAD:
        if (folder / name).exists():
            raise CheckpointError(
                f"{folder / name} is a SentencePiece model, which is not supported; supported are {FORMS} ({WITHOUT})"
            )
    return None


def _read_wordpiece(folder: Path) -> Tokenizer:
    """BERT's vocab.txt: one entry per line; its id is the number of the line."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    if str(config.get("tokenizer_class", "")).startswith("RoFormer"):
        raise CheckpointError(
            f"{folder}: RoFormer's tokenizer splits Chinese words with jieba, which is not supported ({WITHOUT})"
        )
    lines = _lines(folder / "vocab.txt")
    vocab = {token: id for id, token in enumerate(lines)}
    if len(vocab) < len(lines):
        raise CheckpointError(f"{folder / 'vocab.txt'} has an entry twice")
    roles = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", **stated_roles(folder)}
    missing = [roles[role] for role in ("unk", "cls", "sep") if roles[role] not in vocab]
    if missing:
        raise CheckpointError(f"{folder / 'vocab.txt'} lacks {', '.join(missing)}")
    with naming(folder), damaged_tokenizer(str(folder)):
        normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
            strip_accents=config.get("strip_accents"),  # None: as the lower-casing
            lowercase=bool(config.get("do_lower_case", True)),
        )
        backend = wordpiece(vocab, normalizer, unk=roles["unk"], cls=roles["cls"], sep=roles["sep"])
        return with_special(backend, [token for token in roles.values() if token in vocab], roles)


def _read_bpe(folder: Path) -> Tokenizer:
    """vocab.json and merges.txt. GPT-2 and RoBERTa are byte-level; GPT's words are lower-cased and end in `</w>`."""
    vocab = read_json(folder / "vocab.json", VOCAB_LIMIT)
    if not all(isinstance(id, int) and 0 <= id < 1 << 32 for id in vocab.values()):
        raise CheckpointError(f"{folder / 'vocab.json'} must map each token to its id")
    if len(set(vocab.values())) < len(vocab):
        raise CheckpointError(f"{folder / 'vocab.json'} gives two tokens the same id")
    lines = [line for line in _lines(folder / "merges.txt") if line and not line.startswith("#version")]
    merges = split_merges(lines, str(folder / "merges.txt"))
    with naming(folder), damaged_tokenizer(str(folder)):
        if any(token.endswith("</w>") for token in vocab) and "<unk>" in vocab:
            return _gpt(vocab, merges, stated_roles(folder))
        if "<s>" in vocab and "</s>" in vocab:
            return _roberta(vocab, merges, stated_roles(folder))
        end = "<|endoftext|>"
        roles = {"bos": end, "eos": end, "unk": end, **stated_roles(folder)}
        return with_special(byte_level(models.BPE(vocab, merges)), {end} & vocab.keys(), roles)


def _gpt(vocab: dict[str, int], merges: list[tuple[str, str]], stated: dict[str, str]) -> Tokenizer:
    backend = Backend(models.BPE(vocab, merges, unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return with_special(backend, ["<unk>"], stated)


def _roberta(vocab: dict[str, int], merges: list[tuple[str, str]], stated: dict[str, str]) -> Tokenizer:
    backend = byte_level(models.BPE(vocab, merges))
    sep, cls = ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"])
    backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=False)
    special: list[str | AddedToken] = [token for token in ("<s>", "<pad>", "</s>", "<unk>") if token in vocab]
    if "<mask>" in vocab:  # includes the space before it, as the masked word would
        special.append(AddedToken("<mask>", lstrip=True, normalized=False, special=True))
    return with_special(backend, special, {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", **stated})


def _lines(path: Path) -> list[str]:
    try:
        text = read_bytes(path, VOCAB_LIMIT).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")
