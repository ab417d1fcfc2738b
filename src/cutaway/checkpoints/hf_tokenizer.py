"""The tokenizer beside an exported model: what it puts around a text is what the model reads around it here.

generate    <sos> text          where it stands before texts: `Tokenizer.begins_with`
translate   <2de> text <eos>    the tag is written by whoever asks

`generate` and `translate` see to that themselves, and the tokenizers that are trained here put nothing around a text;
`transformers` leaves it to the tokenizer's file. A published decoder's tokenizer goes out as it came.
"""

import json
from contextlib import suppress

from tokenizers import Tokenizer as Backend

from cutaway.errors import InputError
from cutaway.model.config import Config
from cutaway.tokens import Tokenizer
from cutaway.tokens.pipeline import surround
from cutaway.tokens.roles import find_tags, tag_token
from cutaway.tokens.tokenizer import EXAMPLE


def exported_tokenizer(tokenizer: Tokenizer, config: Config) -> Tokenizer:
    """The same tokenizer where it does so already, else a copy that does. Other tasks read what theirs says."""
    ends, bos, eos = config.end_ids or (), None, None
    if config.task == "language_model":
        if config.start_id is not None and tokenizer.begins_with(config.start_id, ends):
            bos = tokenizer.token(config.start_id)
    elif config.task == "translate":
        eos = tokenizer.token(ends[0]) if ends else None
        tokenizer = _with_space_behind_tags(tokenizer)
    else:
        return tokenizer
    with suppress(InputError):  # a vocabulary without the example
        inside, own = tokenizer.encode(EXAMPLE, special=False), tokenizer.encode(EXAMPLE)
        if own == [*([] if bos is None else [config.start_id]), *inside, *([] if eos is None else [ends[0]])]:
            return tokenizer
    copy = Backend.from_str(tokenizer.backend.to_str())
    copy.post_processor = None
    surround(copy, bos, eos)
    return Tokenizer(copy, tokenizer.roles, tokenizer.chat_template)


def _with_space_behind_tags(tokenizer: Tokenizer) -> Tokenizer:
    """`<2de> text` is the tag and the text as it is cut alone: a byte-level kind would give the space to the text."""
    tags = [tag_token(tag) for tag in find_tags(tokenizer.special_ids())]
    with suppress(InputError):
        inside = tokenizer.encode(EXAMPLE, special=False)
        if all(tokenizer.encode(f"{tag} {EXAMPLE}", special=False)[1:] == inside for tag in tags):
            return tokenizer
    description = json.loads(tokenizer.backend.to_str())
    for token in description["added_tokens"]:
        token["rstrip"] = token["rstrip"] or token["content"] in tags
    return Tokenizer(Backend.from_str(json.dumps(description)), tokenizer.roles, tokenizer.chat_template)
