"""Train a tokenizer: how the lecture's text becomes entries of a vocabulary. (mission: part 8, tokenization)

    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=8000)

kind        an entry is                      what the vocabulary lacks
word        a word or a punctuation mark     <unk>
char        a character                      <unk>
byte        a byte                           nothing
bpe         bytes merged, as GPT-2's         nothing
wordpiece   a piece of a word, as BERT's     [UNK]
unigram     a piece, as SentencePiece's      <unk>

The texts are read once, as they come, and not kept. The same texts give the same tokenizer, byte for byte; where the
library's trainer does not promise that (WordPiece, Unigram), we say below what we do instead. Nothing is put around a
text, except by WordPiece ([CLS] … [SEP]): objectives add <sos> and <eos> where they want them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import Normalizer

from cutaway.arguments import checked
from cutaway.errors import ConfigError, InputError
from cutaway.tokens.marks import SPACE, visible_bytes
from cutaway.tokens.pipeline import byte_level, with_special, wordpiece
from cutaway.tokens.roles import tag_token
from cutaway.tokens.tokenizer import MOST_IDS, Tokenizer
from cutaway.tokens.unigram import learn_pieces
from cutaway.tokens.word_counts import Counts, count_words, repeated_words, text_batches

WORDS = r"\w+|[^\w\s]"  # letters, digits and _ make a word; any other character but white space is one by itself


@dataclass(frozen=True)
class Wanted:
    """What a tokenizer shall be like."""

    kind: str
    vocab_size: int | None
    special: tuple[str, ...]  # in the order of their ids
    lowercase: bool
    min_frequency: int

    def room(self, n_needed: int, what: str, other: str = "") -> int:
        """The size of the vocabulary: as asked for, else as needed. An error where it cannot hold what it must."""
        smallest = len(self.special) + n_needed
        if self.vocab_size is None:
            return smallest
        if self.vocab_size < smallest:
            raise ConfigError(
                f"vocab_size={self.vocab_size:,} is too small: {len(self.special)} special tokens and "
                f"{n_needed:,} {what} make {smallest:,}{other}"
            )
        return self.vocab_size

    def ids(self, entries: Iterable[str]) -> dict[str, int]:
        """The vocabulary: special tokens, then the entries."""
        return {entry: id for id, entry in enumerate((*self.special, *entries))}


@checked
def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: str,
    vocab_size: int | None = None,
    lowercase: bool = False,
    min_frequency: int = 1,
    mask: bool = False,
    tags: Sequence[str] = (),
    special: Sequence[str] = (),
) -> Tokenizer:
    """A tokenizer of one of the KINDS, made for these texts.

    `vocab_size` counts everything, special tokens too. It may come out smaller where the texts are short. Kinds word,
    char and byte do without it; they then keep all there is. Words, characters and pairs seen less than `min_frequency`
    times get no entry.

    Special tokens are <pad>, <unk> where the kind needs it, <sos> and <eos>; <mask> on request; for each of the `tags`,
    such as de, the <2de> that asks for a translation to German; and others that are named, such as <delim>. WordPiece
    has BERT's instead: [PAD] [UNK] [CLS] [SEP] [MASK].
    """
    if kind not in KINDS:
        raise ConfigError(f"kind={kind!r}: tokenizers are of the kinds {', '.join(KINDS)}")
    train, own = KINDS[kind]
    if vocab_size is None and train in (_bpe, _wordpiece, _unigram):
        raise ConfigError(f"kind={kind!r} needs a vocab_size: it goes on merging as long as there is room")
    if vocab_size is not None and not 0 < vocab_size <= MOST_IDS:
        raise ConfigError(f"vocab_size={vocab_size:,}: 1 to {MOST_IDS:,} are possible")
    if min_frequency < 1:
        raise ConfigError(f"min_frequency={min_frequency} must be 1 or more")
    if mask and "[MASK]" not in own:
        own = (*own, "<mask>")
    names = (*own, *map(tag_token, tags), *special)
    _check_special(names)
    return train(texts, Wanted(kind, vocab_size, names, lowercase, min_frequency))


def _check_special(names: Sequence[str]) -> None:
    for name in names:
        if not re.fullmatch(r"<[^\s<>]+>|\[[A-Z]+\]", name):
            raise ConfigError(f"special token {name!r}: write <name>, without white space, so that no word is like it")
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ConfigError(f"the special token {twice[0]} stands twice")


# --- words, characters, bytes -----------------------------------------------------------------------------------------


def _word(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    backend = Backend(models.WordLevel())
    if wanted.lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    counts = count_words(texts, backend.normalizer, backend.pre_tokenizer)
    words = [word for word, n in counts if n >= wanted.min_frequency]
    _refuse_none(words, "words", wanted)
    wanted.room(1, "word")
    size = wanted.vocab_size or len(wanted.special) + len(words)
    backend.model = models.WordLevel(wanted.ids(words[: size - len(wanted.special)]), unk_token="<unk>")
    return with_special(backend, wanted.special, {})  # without a decoder, words are joined with spaces


def _char(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    """BPE without a merge: faster than cutting at every character and looking it up as a word."""
    normalizer = normalizers.Lowercase() if wanted.lowercase else None
    counts: Counter[str] = Counter()
    for batch in text_batches(texts):
        for text in batch:
            counts.update(text if normalizer is None else normalizer.normalize_str(text))
    alphabet = _frequent(counts, wanted)
    _refuse_none(alphabet, "characters", wanted)
    wanted.room(len(alphabet), "characters", _or_rarer(wanted))
    backend = Backend(models.BPE(wanted.ids(alphabet), [], unk_token="<unk>"))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.Fuse()
    return with_special(backend, wanted.special, {})


def _byte(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    """Byte b has the id b + the number of special tokens. The texts are not needed, and not read."""
    wanted.room(256, "bytes")
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend = byte_level(models.BPE(wanted.ids(visible_bytes()), []), split)
    if wanted.lowercase:
        backend.normalizer = normalizers.Lowercase()
    return with_special(backend, wanted.special, {})


# --- pieces of words --------------------------------------------------------------------------------------------------


def _bpe(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    """The most frequent pair of neighbours becomes an entry, again and again. (Sennrich 2016; on bytes: GPT-2)

    The library takes the pair with the smaller ids where two are equally frequent; ids of bytes are fixed, so the
    merges are, too.
    """
    backend = byte_level(models.BPE())
    if wanted.lowercase:
        backend.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=wanted.room(256, "bytes"),
        min_frequency=wanted.min_frequency,
        special_tokens=list(wanted.special),
        initial_alphabet=visible_bytes(),
        show_progress=False,
    )
    backend.train_from_iterator(text_batches(texts), trainer)
    return with_special(backend, wanted.special, {})


def _wordpiece(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    """BPE whose entries say whether they begin a word (`play`) or go on with it (`##ing`), as BERT's were made.

    The library gives the `##x` their ids in the order of a hash map, and so breaks ties differently every time. Hence
    two steps: count the words, then train on the counts with the whole alphabet given in its order. Every character of
    the texts is known both at the beginning and inside of words.
    """
    normalizer = normalizers.BertNormalizer(lowercase=wanted.lowercase)
    split = pre_tokenizers.BertPreTokenizer()
    words = count_words(texts, normalizer, split)
    first = _frequent(_characters(words), wanted)
    _refuse_none(first, "words", wanted)
    inside = [f"##{c}" for c in first if len(split.pre_tokenize_str(normalizer.normalize_str(f"a{c}"))) == 1]
    size = wanted.room(len(first) + len(inside), "characters (with their ##)", _or_rarer(wanted))
    known = set(first)
    trained = Backend(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=wanted.min_frequency,
        special_tokens=[*wanted.special, *first, *inside],  # to the trainer: what has its id already
        show_progress=False,
    )
    trained.train_from_iterator(repeated_words([(word, n) for word, n in words if known.issuperset(word)]), trainer)
    backend = wordpiece(trained.get_vocab(), normalizer, unk="[UNK]", cls="[CLS]", sep="[SEP]")
    return with_special(backend, wanted.special, {})


def _unigram(texts: Iterable[str], wanted: Wanted) -> Tokenizer:
    """Pieces with probabilities; a space is part of the piece behind it, written ▁. (Kudo 2018)

    White space is one space; full-width letters, ligatures and the like become the plain ones (NFKC).
    """
    normalizer = _plain_text(wanted.lowercase)
    split = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first")  # the text's first word has a ▁ like the others
    words = count_words(texts, normalizer, split)
    characters = _characters(words)
    _refuse_none(characters.keys() - {SPACE}, "words", wanted)
    # «<EOS>» in lower case must not become the special token: so its characters are known, and are the better cut.
    of_special = dict.fromkeys(sorted(set("".join(wanted.special))), wanted.min_frequency)
    characters.update({c: n for c, n in of_special.items() if characters[c] < n})
    alphabet = {c: characters[c] for c in _frequent(characters, wanted)}
    size = wanted.room(len(alphabet), "characters", _or_rarer(wanted))
    pieces = learn_pieces(words, alphabet, size - len(wanted.special), never=set(wanted.special))
    worse = 2 * min(pieces.values()) * max(map(len, wanted.special))
    vocab = [*((token, worse) for token in wanted.special), *pieces.items()]
    backend = Backend(models.Unigram(vocab, unk_id=wanted.special.index("<unk>")))
    backend.normalizer = normalizer
    backend.pre_tokenizer = split
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme="first")
    return with_special(backend, wanted.special, {})


def _plain_text(lowercase: bool) -> Normalizer:
    steps: list[Normalizer] = [normalizers.NFKC()]
    if lowercase:
        steps += [normalizers.Lowercase(), normalizers.NFKC()]
    return normalizers.Sequence([*steps, normalizers.Replace(Regex(rf"[\s{SPACE}]+"), " ")])


# --- alphabets --------------------------------------------------------------------------------------------------------


def _characters(words: Counts) -> Counter[str]:
    """How often each character stands in the text."""
    counts: Counter[str] = Counter()
    for word, n in words:
        for character in word:
            counts[character] += n
    return counts


def _frequent(characters: Counter[str], wanted: Wanted) -> list[str]:
    """The characters that get an entry, in their own order."""
    return sorted(c for c, n in characters.items() if n >= wanted.min_frequency)


def _or_rarer(wanted: Wanted) -> str:
    return f" (fewer with a min_frequency above {wanted.min_frequency}, which leaves rare characters out)"


def _refuse_none(found: Iterable[str], what: str, wanted: Wanted) -> None:
    if not any(True for _ in found):
        often = f" that stand {wanted.min_frequency} times" if wanted.min_frequency > 1 else ""
        raise InputError(f"the texts to train on have no {what}{often}")


Train = Callable[[Iterable[str], Wanted], Tokenizer]
PAD, UNK, SOS, EOS = "<pad>", "<unk>", "<sos>", "<eos>"
KINDS: dict[str, tuple[Train, tuple[str, ...]]] = {  # how each is trained, and its special tokens
    "word": (_word, (PAD, UNK, SOS, EOS)),
    "char": (_char, (PAD, UNK, SOS, EOS)),
    "byte": (_byte, (PAD, SOS, EOS)),
    "bpe": (_bpe, (PAD, SOS, EOS)),
    "wordpiece": (_wordpiece, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")),
    "unigram": (_unigram, (PAD, UNK, SOS, EOS)),
}
