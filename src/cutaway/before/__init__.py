"""What came before the Transformer, as the lecture tells it: each model mends what the one before it cannot do.

1. First order: the last word says what comes next. «… the battery ran» and «… the program ran» look the same to it.

       lines = sentences("check whether the battery ran down please\\ncheck whether the program ran please")
       MarkovChain(lines).row(("ran",))                       {"down": 0.5, "please": 0.5}

2. Second order: the last two words do. (battery, ran) and (program, ran) differ; but three words need V³ numbers, and
   the word that matters may stand ten words back.

       MarkovChain(lines, order=2).row(("battery", "ran"))    {"down": 1.0}

3. Second order with skips: every earlier word makes a feature with the last one, however far apart, and all of them
   vote. Most have nothing to say, and drown the one that has.

       skips = Skips(lines)
       skips.votes("check whether the battery ran".split())   {"down": 2.5, "please": 1.5}

4. Masks: for each last word, keep only the features that tell.

       masked = MaskedSkips(skips, {"ran": {"battery", "program"}})  set by hand, or `informative(skips, first)`
       masked.votes("check whether the battery ran".split())  {"down": 1.0}

5. Attention: the mask of the last word is looked up, too. A one-hot query against all masks as keys, Q·Kᵀ, finds it.
   From there on the numbers need not be one-hot, and can be learnt: that is the Transformer.

       as_attention(masked, "check whether the battery ran".split()).mask().tolist()    [0.0, 0.0, 0.0, 1.0]

`marked` puts <sos> and <eos> around sentences, so that a chain also knows how they begin and end. `chain.table()` is
what it counted, for a terminal; `HeatMap(*chain.matrix())` of `pictures` draws it.
"""

from typing import TYPE_CHECKING

from cutaway.lazy import lazy_names

if TYPE_CHECKING:
    from cutaway.before.markov.as_attention import as_attention as as_attention
    from cutaway.before.markov.chain import Chain as Chain
    from cutaway.before.markov.chain import Matrix as Matrix
    from cutaway.before.markov.order import MarkovChain as MarkovChain
    from cutaway.before.markov.sentences_of_words import EOS as EOS
    from cutaway.before.markov.sentences_of_words import SOS as SOS
    from cutaway.before.markov.sentences_of_words import marked as marked
    from cutaway.before.markov.sentences_of_words import sentences as sentences
    from cutaway.before.markov.skips import MaskedSkips as MaskedSkips
    from cutaway.before.markov.skips import Skips as Skips
    from cutaway.before.markov.skips import informative as informative
    from cutaway.before.ngrams.ngram import NGramModel as NGramModel
    from cutaway.before.ngrams.ngram_of_words import NGrams as NGrams
    from cutaway.before.ngrams.smoothing import train_ngrams as train_ngrams

__getattr__, __dir__ = lazy_names(__name__)
