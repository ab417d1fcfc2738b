"""Train a tokenizer: from texts to a vocabulary.

    tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=8000)

kind        an entry is                      what is not in the vocabulary becomes
word        a word or a punctuation mark     <unk>
char        a character                      <unk>
byte        a byte                           nothing
bpe         bytes merged, as GPT-2's         nothing
wordpiece   a piece of a word, as BERT's     [UNK]
unigram     a piece, as SentencePiece's      <unk>

The texts are read once and not kept. The same texts give the same tokenizer, byte for byte; where the library's trainer
does not guarantee that (WordPiece, Unigram), the functions below say what they do instead. Nothing is added to a text,
except by WordPiece ([CLS] … [SEP]): objectives add <sos> and <eos> where they need them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.normalizers import Normalizer

from cutaway.arguments import with_options
from cutaway.errors import ConfigError, InputError
from cutaway.tokens.marks import SPACE, visible_bytes
from cutaway.tokens.options import TokenizerOptions
from cutaway.tokens.pipeline import byte_level, with_special, wordpiece
from cutaway.tokens.roles import tag_token
from cutaway.tokens.tokenizer import MOST_IDS, Tokenizer
from cutaway.tokens.unigram import learn_pieces
from cutaway.tokens.word_counts import Counts, count_words, repeated_words, text_batches

WORDS = r"\w+|[^\w\s]"  # letters, digits and _ make a word; any other character but white space is one by itself


@dataclass(frozen=True)
class Settings:
    """What kind of tokenizer to train."""

    kind: str
    vocab_size: int | None
    special: tuple[str, ...]  # in the order of their ids
    lowercase: bool
    min_frequency: int

    def size_for(self, n_needed: int, what: str, hint: str = "") -> int:
        """The size of the vocabulary: `vocab_size`, else as small as possible. An error if it is too small."""
        smallest = len(self.special) + n_needed
        if self.vocab_size is None:
            return smallest
        if self.vocab_size < smallest:
            raise ConfigError(
                f"vocab_size={self.vocab_size:,} is too small: {len(self.special)} special tokens and "
                f"{n_needed:,} {what} make {smallest:,}{hint}"
            )
        return self.vocab_size

    def ids(self, entries: Iterable[str]) -> dict[str, int]:
        """The vocabulary: special tokens, then the entries."""
        return {entry: id for id, entry in enumerate((*self.special, *entries))}


@with_options
def train_tokenizer(texts: Iterable[str], *, options: TokenizerOptions) -> Tokenizer:
    """Trains a tokenizer of one of the KINDS on these texts.

    `vocab_size` counts everything, special tokens too; short texts may give fewer. The kinds word, char and byte do not
    need it: without it they keep every entry. Words, characters and pairs that occur fewer than `min_frequency` times
    get no entry.

    Special tokens are <pad>, <unk> where the kind needs it, <sos> and <eos>; <mask> with `mask`; for each tag in
    `tags`, such as de, a <2de> that asks for a translation to German; and those in `special`, such as <delim>.
    WordPiece has BERT's instead: [PAD] [UNK] [CLS] [SEP] [MASK].
    """
    vocab_size, min_frequency = options.vocab_size, options.min_frequency
    train, own = KINDS[options.kind]
    if vocab_size is None and train in (_bpe, _wordpiece, _unigram):
        raise ConfigError(f"kind={str(options.kind)!r} needs a vocab_size, at which it stops")
    if vocab_size is not None and not 0 < vocab_size <= MOST_IDS:
        raise ConfigError(f"vocab_size={vocab_size:,} is not between 1 and {MOST_IDS:,}")
    if min_frequency < 1:
        raise ConfigError(f"min_frequency={min_frequency} must be 1 or more")
    if options.mask and "[MASK]" not in own:
        own = (*own, "<mask>")
    names = (*own, *map(tag_token, options.tag_list), *options.special)
    _check_special(names)
    return train(texts, Settings(options.kind, vocab_size, names, options.lowercase, min_frequency))


def _check_special(names: Sequence[str]) -> None:
    for name in names:
        if not re.fullmatch(r"<[^\s<>]+>|\[[A-Z]+\]", name):
            raise ConfigError(f"special token {name!r}: write <name>, without white space, so that it is no word")
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ConfigError(f"the special token {twice[0]} is given twice")


# --- words, characters, bytes -----------------------------------------------------------------------------------------


def _word(texts: Iterable[str], settings: Settings) -> Tokenizer:
    backend = Backend(models.WordLevel())
    if settings.lowercase:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
    counts = count_words(texts, backend.normalizer, backend.pre_tokenizer)
    words = [word for word, n in counts if n >= settings.min_frequency]
    _refuse_none(words, "words", settings)
    settings.size_for(1, "word")
    size = settings.vocab_size or len(settings.special) + len(words)
    backend.model = models.WordLevel(settings.ids(words[: size - len(settings.special)]), unk_token="<unk>")
    return with_special(backend, settings.special, {})  # without a decoder, words are joined with spaces


def _char(texts: Iterable[str], settings: Settings) -> Tokenizer:
    """BPE without merges, which is faster than a vocabulary of one-letter words."""
    normalizer = normalizers.Lowercase() if settings.lowercase else None
    counts: Counter[str] = Counter()
    for batch in text_batches(texts):
        for text in batch:
            counts.update(text if normalizer is None else normalizer.normalize_str(text))
    alphabet = _frequent(counts, settings)
    _refuse_none(alphabet, "characters", settings)
    settings.size_for(len(alphabet), "characters", _min_frequency_hint(settings))
    backend = Backend(models.BPE(settings.ids(alphabet), [], unk_token="<unk>"))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.Fuse()
    return with_special(backend, settings.special, {})


def _byte(texts: Iterable[str], settings: Settings) -> Tokenizer:
    """Byte b has the id b + the number of special tokens. The texts are not read."""
    settings.size_for(256, "bytes")
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend = byte_level(models.BPE(settings.ids(visible_bytes()), []), split)
    if settings.lowercase:
        backend.normalizer = normalizers.Lowercase()
    return with_special(backend, settings.special, {})


# --- pieces of words --------------------------------------------------------------------------------------------------


def _bpe(texts: Iterable[str], settings: Settings) -> Tokenizer:
    """Merges the most frequent pair of neighbours, again and again (Sennrich 2016; on bytes: GPT-2).

    Of equally frequent pairs the library takes the one with the smaller ids; the ids of bytes are fixed, so the merges
    are deterministic.
    """
    backend = byte_level(models.BPE())
    if settings.lowercase:
        backend.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size_for(256, "bytes"),
        min_frequency=settings.min_frequency,
        special_tokens=list(settings.special),
        initial_alphabet=visible_bytes(),
        show_progress=False,
    )
    backend.train_from_iterator(text_batches(texts), trainer)
    return with_special(backend, settings.special, {})


def _wordpiece(texts: Iterable[str], settings: Settings) -> Tokenizer:
    """BPE whose entries begin a word (`play`) or continue one (`##ing`), as BERT's was made.

    The library numbers the `##x` in the order of a hash map, and so breaks ties differently every time. Hence there are
    two steps: count the words, then train on the counts with the alphabet in a fixed order. Every character of the
    texts gets an entry for the beginning of a word and one for the inside.
    """
    normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
    split = pre_tokenizers.BertPreTokenizer()
    words = count_words(texts, normalizer, split)
    first = _frequent(_characters(words), settings)
    _refuse_none(first, "words", settings)
    inside = [f"##{c}" for c in first if len(split.pre_tokenize_str(normalizer.normalize_str(f"a{c}"))) == 1]
    size = settings.size_for(len(first) + len(inside), "characters (with their ##)", _min_frequency_hint(settings))
    known = set(first)
    trained = Backend(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=settings.min_frequency,
        special_tokens=[*settings.special, *first, *inside],  # for the trainer: entries whose ids are fixed
        show_progress=False,
    )
    trained.train_from_iterator(repeated_words([(word, n) for word, n in words if known.issuperset(word)]), trainer)
    backend = wordpiece(trained.get_vocab(), normalizer, unk="[UNK]", cls="[CLS]", sep="[SEP]")
    return with_special(backend, settings.special, {})


def _unigram(texts: Iterable[str], settings: Settings) -> Tokenizer:
    """Pieces with probabilities (Kudo 2018); a space belongs to the piece behind it and is written ▁.

    White space becomes one space; full-width letters, ligatures and the like become plain ones (NFKC).
    """
    normalizer = _plain_text(settings.lowercase)
    split = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first")  # the text's first word has a ▁ like the others
    words = count_words(texts, normalizer, split)
    characters = _characters(words)
    _refuse_none(characters.keys() - {SPACE}, "words", settings)
    # "<EOS>" in lower case must not become the special token: its characters are known, and score better.
    of_special = dict.fromkeys(sorted(set("".join(settings.special))), settings.min_frequency)
    characters.update({c: n for c, n in of_special.items() if characters[c] < n})
    alphabet = {c: characters[c] for c in _frequent(characters, settings)}
    size = settings.size_for(len(alphabet), "characters", _min_frequency_hint(settings))
    pieces = learn_pieces(words, alphabet, size - len(settings.special), never=set(settings.special))
    worse = 2 * min(pieces.values()) * max(map(len, settings.special))
    vocab = [*((token, worse) for token in settings.special), *pieces.items()]
    backend = Backend(models.Unigram(vocab, unk_id=settings.special.index("<unk>")))
    backend.normalizer = normalizer
    backend.pre_tokenizer = split
    backend.decoder = decoders.Metaspace(SPACE, prepend_scheme="first")
    return with_special(backend, settings.special, {})


def _plain_text(lowercase: bool) -> Normalizer:
    steps: list[Normalizer] = [normalizers.NFKC()]
    if lowercase:
        steps += [normalizers.Lowercase(), normalizers.NFKC()]
    return normalizers.Sequence([*steps, normalizers.Replace(Regex(rf"[\s{SPACE}]+"), " ")])


# --- alphabets --------------------------------------------------------------------------------------------------------


def _characters(words: Counts) -> Counter[str]:
    """How often each character occurs."""
    counts: Counter[str] = Counter()
    for word, n in words:
        for character in word:
            counts[character] += n
    return counts


def _frequent(characters: Counter[str], settings: Settings) -> list[str]:
    """The characters that get an entry, sorted."""
    return sorted(c for c, n in characters.items() if n >= settings.min_frequency)


def _min_frequency_hint(settings: Settings) -> str:
    return f" (fewer with a min_frequency above {settings.min_frequency}, which drops rare characters)"


def _refuse_none(found: Iterable[str], what: str, settings: Settings) -> None:
    if not any(True for _ in found):
        often = f" that occur {settings.min_frequency} times" if settings.min_frequency > 1 else ""
        raise InputError(f"the texts to train on have no {what}{often}")


Train = Callable[[Iterable[str], Settings], Tokenizer]
PAD, UNK, SOS, EOS = "<pad>", "<unk>", "<sos>", "<eos>"
KINDS: dict[str, tuple[Train, tuple[str, ...]]] = {  # how each is trained, and its special tokens
    "word": (_word, (PAD, UNK, SOS, EOS)),
    "char": (_char, (PAD, UNK, SOS, EOS)),
    "byte": (_byte, (PAD, SOS, EOS)),
    "bpe": (_bpe, (PAD, SOS, EOS)),
    "wordpiece": (_wordpiece, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")),
    "unigram": (_unigram, (PAD, UNK, SOS, EOS)),
}
