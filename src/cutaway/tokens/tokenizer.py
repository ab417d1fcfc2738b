"""`Tokenizer`: one interface for every kind of tokenizer.

    ids = tokenizer("I ate an apple")      # [40, 15063, 281, 17180]; the same as tokenizer.encode
    tokenizer.decode(ids)                  # 'I ate an apple'
    len(tokenizer)                         # 50257

The `tokenizers` library does the work, in Rust.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from cutaway.errors import CheckpointError, InputError
from cutaway.files import MEGABYTE, naming, parse_json, read_bytes, replacing, write_json
from cutaway.folders import TOKENIZER, finish_replacing, replacing_folder
from cutaway.tokens.expansion import refuse_growth
from cutaway.tokens.library_errors import damaged_tokenizer, input_errors, refuse_broken_charsmap
from cutaway.tokens.roles import CONFIG, find_roles, find_tags, stated_roles, stated_template, tag_token

FILE = "tokenizer.json"
LIMIT = 128 * MEGABYTE  # a vocabulary of a million entries needs half as much
MOST_IDS = 1 << 24
OUR_START = "<sos>"  # what `train_tokenizer` calls the start token
EXAMPLE = "a"


@dataclass(frozen=True)
class Encoded:
    """The tokens of a text with their places in it; in a pair of texts, `segments` says in which of the two."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]  # characters [start, stop) of the text; (0, 0) for special tokens
    segments: list[int]


class Tokenizer:
    """Text → ids and back. `special` adds what the tokenizer puts around a text ([CLS] … [SEP], <s> …)."""

    file: Path | None = None  # that it was read from

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        roles: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        backend.no_padding()  # files may silently pad, or truncate to 128 tokens: here the caller does both
        backend.no_truncation()
        self.backend = backend
        self.chat_template = chat_template  # how a conversation is written for the model, in Jinja: never run here
        highest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        if highest >= MOST_IDS:
            raise CheckpointError(f"a token has the id {highest:,}; at most {MOST_IDS:,} are supported")
        self.vocab_size = highest + 1  # ids are 0 … vocab_size − 1
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        stated = {role: token for role, token in (roles or {}).items() if backend.token_to_id(token) is not None}
        self.roles = find_roles(special, stated)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Load a tokenizer.json, or the one in a folder; `find_tokenizer` also knows older forms."""
        finish_replacing(path)
        file = path / FILE if path.is_dir() else path
        data = read_bytes(file, LIMIT)
        description = parse_json(data, str(file))
        refuse_broken_charsmap(description.get("normalizer"), file)
        refuse_growth(description, file)
        with naming(file), damaged_tokenizer(str(file)):
            backend = tokenizers.Tokenizer.from_buffer(data)
            tokenizer = cls(backend, stated_roles(file.parent), stated_template(file.parent))
            tokenizer.backend = tokenizer._without_dropout()  # a file may ask for it, silently
            tokenizer._try_once()
        tokenizer.file = file
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and in tokenizer_config.json, where other tools look, the roles and the chat template.

        An earlier tokenizer in the folder is replaced, both files at once.
        """
        with replacing_folder(folder, TOKENIZER) as fresh:
            self.write(fresh)

    def write(self, folder: Path) -> None:
        """Writes the same files into a folder that nobody reads yet."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / FILE) as temporary:
            temporary.write_text(self._without_dropout().to_str(pretty=True), encoding="utf-8")
        roles = {f"{role}_token": token for role, token in self.roles.items()}
        chat = {} if self.chat_template is None else {"chat_template": self.chat_template}
        write_json(
            folder / CONFIG,
            {"tokenizer_class": "PreTrainedTokenizerFast", **roles, **chat, "clean_up_tokenization_spaces": False},
        )

    def __call__(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text."""
        return self.encode(text, special)

    def __len__(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer({type(self.backend.model).__name__}, vocab_size={self.vocab_size})"

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text."""
        return self.encoding(text, special=special).ids

    def encode_batch(self, texts: Sequence[str], special: bool = True) -> list[list[int]]:
        """The ids of many texts, on all cores; nothing is padded."""
        with input_errors(self.file):
            return [encoding.ids for encoding in self.backend.encode_batch(list(texts), add_special_tokens=special)]

    def encode_pair(self, first: str, second: str, special: bool = True) -> Encoded:
        """Two texts as one sequence: BERT's `[CLS] first [SEP] second [SEP]` with segments 0 and 1."""
        return _encoded(self.encoding(first, second, special))

    def encode_full(self, text: str, special: bool = True) -> Encoded:
        """The ids of a text, their tokens and their places in the text."""
        return _encoded(self.encoding(text, special=special))

    def encoding(self, text: str, second: str | None = None, special: bool = True) -> tokenizers.Encoding:
        """What the library returns for a text, or a pair of texts."""
        with input_errors(self.file):
            return self.backend.encode(text, second, add_special_tokens=special)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of the ids; byte-level tokenizers restore exactly what was encoded."""
        if len(ids) and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            wrong = next(id for id in ids if not 0 <= id < self.vocab_size)
            raise InputError(f"token id {wrong} is outside the vocabulary 0 … {self.vocab_size - 1}")
        with input_errors(self.file):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special)

    def token(self, id: int) -> str:
        """The token with this id, as the vocabulary spells it (`Ġapple`, `##ing`, `▁the`)."""
        token = self.backend.id_to_token(id) if 0 <= id < self.vocab_size else None
        if token is None:
            raise InputError(f"token id {id} is outside the vocabulary 0 … {self.vocab_size - 1}")
        return token

    def id(self, token: str) -> int:
        """The id of a token."""
        id = self.backend.token_to_id(token)
        if id is None:
            raise InputError(f"the vocabulary has no token {token!r}")
        return id

    def __contains__(self, token: str) -> bool:
        return self.backend.token_to_id(token) is not None

    def special_ids(self) -> dict[str, int]:
        """The id of every special token."""
        added = self.backend.get_added_tokens_decoder()
        return {token.content: id for id, token in sorted(added.items()) if token.special}

    def tag_id(self, tag: str) -> int:
        """The id of <2de>, which asks for a translation to `de`."""
        tags = find_tags(self.special_ids())
        if tag not in tags:
            known = f"it has {', '.join(tags)}" if tags else "it has none"
            raise InputError(f"the tokenizer has no tag {tag!r} ({tag_token(tag)}); {known}")
        return self.id(tag_token(tag))

    def continues_word(self) -> list[bool]:
        """For every id, whether its token continues a word (`##ing`): needed for whole-word masking.

        Exact for WordPiece, an approximation for others: see `cutaway.tokens.marks.continuing_ids`. Special tokens
        never continue a word.
        """
        from cutaway.tokens.marks import continuing_ids

        special = set(self.special_ids().values())
        continuing = continuing_ids(self.backend)
        return [id in continuing and id not in special for id in range(self.vocab_size)]

    def begins_with(self, start_id: int, end_ids: Sequence[int] = ()) -> bool:
        """Whether a prompt for a language model begins with its start token.

        A published tokenizer shows it by what it adds to a text. Those trained here add nothing: their prompts begin
        with the start token, unless that also ends texts and so separates two of them.
        """
        if start_id < self.vocab_size and self.token(start_id) != OUR_START:
            with suppress(InputError):  # a vocabulary without the example
                inside, own = self.encode(EXAMPLE, special=False), self.encode(EXAMPLE)
                if own in (inside, [start_id, *inside]):
                    return own != inside
        return start_id not in (*end_ids, self.eos_id)

    def with_dropout(self, dropout: float) -> "Tokenizer":
        """A copy whose BPE skips each merge with this probability, so that a text is split differently each time.

        For training only (BPE-dropout, Provilkov 2020). The library's random numbers cannot be seeded, so no two runs
        are the same; `cutaway.tokens.bpe_dropout` can be seeded.
        """
        if not 0 <= dropout < 1:
            raise InputError(f"dropout={dropout} must be at least 0 and below 1")
        copy = tokenizers.Tokenizer.from_str(self.backend.to_str())
        if not isinstance(copy.model, tokenizers.models.BPE):
            raise InputError(f"only BPE has merges to drop; this is a {type(copy.model).__name__}")
        copy.model.dropout = dropout or None
        return Tokenizer(copy, self.roles, self.chat_template)

    def _without_dropout(self) -> tokenizers.Tokenizer:
        return self.with_dropout(0.0).backend if getattr(self.backend.model, "dropout", None) else self.backend

    def _role(self, role: str) -> int | None:
        return self.id(self.roles[role]) if role in self.roles else None

    @property
    def pad_id(self) -> int | None:
        """Pads short rows of a batch."""
        return self._role("pad")

    @property
    def bos_id(self) -> int | None:
        """Begins a sequence: `<sos>`, `<s>`."""
        return self._role("bos")

    @property
    def eos_id(self) -> int | None:
        """Ends a sequence: `<eos>`, `</s>`."""
        return self._role("eos")

    @property
    def unk_id(self) -> int | None:
        """Replaces what is not in the vocabulary."""
        return self._role("unk")

    @property
    def mask_id(self) -> int | None:
        """Replaces a word that BERT has to predict."""
        return self._role("mask")

    @property
    def cls_id(self) -> int | None:
        """BERT's first token, whose vector represents the whole text."""
        return self._role("cls")

    @property
    def sep_id(self) -> int | None:
        """Ends each segment of BERT's input."""
        return self._role("sep")

    def _try_once(self) -> None:
        """Encodes and decodes once: some damage shows only then. A text that does not fit the vocabulary is fine."""
        for second in (None, "a"):
            with suppress(InputError):
                self.decode(self.encoding("a", second, True).ids, skip_special=False)


def find_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, in whichever format it is; None if there is none."""
    finish_replacing(folder)
    if (folder / FILE).exists():
        return Tokenizer.load(folder)
    from cutaway.tokens.readers import older_tokenizer

    return older_tokenizer(folder)


def _encoded(encoding: tokenizers.Encoding) -> Encoded:
    return Encoded(encoding.ids, encoding.tokens, encoding.offsets, encoding.type_ids)
