"""A WordPiece tokenizer of a few words, with BERT's [CLS] and [SEP] around texts and pairs."""

from collections.abc import Sequence

from tokenizers import AddedToken, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from cutaway.tokens import Tokenizer


def bert_tokenizer(words: Sequence[str], *more: AddedToken) -> Tokenizer:
    """`words` begin with [UNK]; `more` special tokens come after [PAD], [CLS] and [SEP]."""
    backend = Backend(models.WordPiece({word: id for id, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([*(AddedToken(token) for token in ("[PAD]", "[CLS]", "[SEP]")), *more])
    cls_id, sep_id = backend.token_to_id("[CLS]"), backend.token_to_id("[SEP]")
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls_id), ("[SEP]", sep_id)],
    )
    return Tokenizer(backend)
