"""`Tokenizer`: one face for every way of cutting text.

    ids = tokenizer.encode("I ate an apple")      # [40, 15063, 281, 17180]
    tokenizer.decode(ids)                         # 'I ate an apple'

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
from cutaway.tokens.library_errors import damaged_tokenizer, misfit, refuse_broken_charsmap
from cutaway.tokens.marks import continuing_ids
from cutaway.tokens.roles import CONFIG, find_roles, find_tags, stated_roles, tag_token

FILE = "tokenizer.json"
LIMIT = 128 * MEGABYTE  # a vocabulary of a million entries needs half of it
MOST_IDS = 1 << 24
OURS = "<sos>"  # what `train_tokenizer` calls the start token
EXAMPLE = "a"


@dataclass(frozen=True)
class Encoded:
    """A text as tokens, with the place of each in the text; of a pair, `segments` says in which of the two."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]  # characters [start, stop) of the text; (0, 0) for special tokens
    segments: list[int]


class Tokenizer:
    """Text → ids and back. `special` adds what the tokenizer puts around a text ([CLS] … [SEP], <s> …)."""

    file: Path | None = None  # from which it was read

    def __init__(self, backend: tokenizers.Tokenizer, roles: Mapping[str, str] | None = None) -> None:
        backend.no_padding()  # files may ask to cut texts at 128 tokens, silently: padding and cutting are ours to say
        backend.no_truncation()
        self.backend = backend
        highest = max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        if highest >= MOST_IDS:
            raise CheckpointError(f"a token has the id {highest:,}; at most {MOST_IDS:,} are known")
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
            tokenizer = cls(tokenizers.Tokenizer.from_buffer(data), stated_roles(file.parent))
            tokenizer.backend = tokenizer._without_dropout()  # a file may ask for it, silently
            tokenizer._try_once()
        tokenizer.file = file
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, and the roles in tokenizer_config.json where other tools look for them.

        An earlier tokenizer in the folder is replaced, both files at once.
        """
        with replacing_folder(folder, TOKENIZER) as fresh:
            self.write(fresh)

    def write(self, folder: Path) -> None:
        """The same into a folder that nobody reads yet."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / FILE) as temporary:
            temporary.write_text(self._without_dropout().to_str(pretty=True), encoding="utf-8")
        roles = {f"{role}_token": token for role, token in self.roles.items()}
        write_json(
            folder / CONFIG,
            {"tokenizer_class": "PreTrainedTokenizerFast", **roles, "clean_up_tokenization_spaces": False},
        )

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text."""
        return self.encoding(text, special=special).ids

    def encode_batch(self, texts: Sequence[str], special: bool = True) -> list[list[int]]:
        """The ids of many texts, on all cores; nothing is padded."""
        with misfit(self.file):
            return [encoding.ids for encoding in self.backend.encode_batch(list(texts), add_special_tokens=special)]

    def encode_pair(self, first: str, second: str, special: bool = True) -> Encoded:
        """Two texts as one sequence: BERT's `[CLS] first [SEP] second [SEP]` with segments 0 and 1."""
        return _encoded(self.encoding(first, second, special))

    def encode_full(self, text: str, special: bool = True) -> Encoded:
        """The ids of a text with their tokens and their places in it, for showing."""
        return _encoded(self.encoding(text, special=special))

    def encoding(self, text: str, second: str | None = None, special: bool = True) -> tokenizers.Encoding:
        """All that the library says of a text, or of a pair."""
        with misfit(self.file):
            return self.backend.encode(text, second, add_special_tokens=special)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of some ids; byte-level kinds give back exactly what was encoded."""
        if len(ids) and not 0 <= min(ids) <= max(ids) < self.vocab_size:
            wrong = next(id for id in ids if not 0 <= id < self.vocab_size)
            raise InputError(f"token id {wrong} is outside the vocabulary 0 … {self.vocab_size - 1}")
        with misfit(self.file):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special)

    def token(self, id: int) -> str:
        """The entry of the vocabulary at an id, as the file spells it (`Ġapple`, `##ing`, `▁the`)."""
        token = self.backend.id_to_token(id) if 0 <= id < self.vocab_size else None
        if token is None:
            raise InputError(f"token id {id} is outside the vocabulary 0 … {self.vocab_size - 1}")
        return token

    def id(self, token: str) -> int:
        """The id of an entry of the vocabulary."""
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
        """For every id, whether this entry goes on with the word before it (`##ing`): so that words are masked whole.

        Exact for WordPiece, a good guess for the others: `cutaway.tokens.marks.continuing_ids` says where it errs.
        Special tokens never do.
        """
        special = set(self.special_ids().values())
        continuing = continuing_ids(self.backend)
        return [id in continuing and id not in special for id in range(self.vocab_size)]

    def begins_with(self, start_id: int, end_ids: Sequence[int] = ()) -> bool:
        """Whether a text that a language model goes on with stands behind its start token.

        A published tokenizer says so itself, by what it puts around a text. Those that are trained here put nothing
        around it: then it does, unless it also ends texts and so stands between two.
        """
        if start_id < self.vocab_size and self.token(start_id) != OURS:
            with suppress(InputError):  # a vocabulary without the example
                inside, own = self.encode(EXAMPLE, special=False), self.encode(EXAMPLE)
                if own in (inside, [start_id, *inside]):
                    return own != inside
        return start_id not in (*end_ids, self.eos_id)

    def with_dropout(self, dropout: float) -> "Tokenizer":
        """A copy whose BPE skips a merge with this probability, so that a text is cut another way each time.

        For training only (BPE-dropout, Provilkov 2020). The library draws from a source that cannot be seeded: no two
        runs are the same; `cutaway.tokens.bpe_dropout` cuts as a seed says.
        """
        if not 0 <= dropout < 1:
            raise InputError(f"dropout={dropout} must be at least 0 and below 1")
        copy = tokenizers.Tokenizer.from_str(self.backend.to_str())
        if not isinstance(copy.model, tokenizers.models.BPE):
            raise InputError(f"only BPE has merges to drop; this is a {type(copy.model).__name__}")
        copy.model.dropout = dropout or None
        return Tokenizer(copy, self.roles)

    def _without_dropout(self) -> tokenizers.Tokenizer:
        return self.with_dropout(0.0).backend if getattr(self.backend.model, "dropout", None) else self.backend

    def _role(self, role: str) -> int | None:
        return self.id(self.roles[role]) if role in self.roles else None

    @property
    def pad_id(self) -> int | None:
        """Fills short rows of a batch."""
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
        """Stands for what the vocabulary lacks."""
        return self._role("unk")

    @property
    def mask_id(self) -> int | None:
        """Hides a word that BERT has to guess."""
        return self._role("mask")

    @property
    def cls_id(self) -> int | None:
        """BERT's first token, whose vector stands for the whole."""
        return self._role("cls")

    @property
    def sep_id(self) -> int | None:
        """Ends each segment of BERT's input."""
        return self._role("sep")

    def _try_once(self) -> None:
        """Some damage shows only when a text is cut or put together; a text that merely does not fit is no damage."""
        for second in (None, "a"):
            with suppress(InputError):
                self.decode(self.encoding("a", second, True).ids, skip_special=False)


def _encoded(encoding: tokenizers.Encoding) -> Encoded:
    return Encoded(encoding.ids, encoding.tokens, encoding.offsets, encoding.type_ids)
