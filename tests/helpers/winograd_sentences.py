"""Two sentences that differ in what «it» means."""

from cutaway.evaluation.winograd import Schema

WORDS = "[UNK] The animal didn't cross the street because it was too tired. wide. his".split()
TIRED = Schema("The animal didn't cross the street because ", " was too tired.", ("The animal", "the street"), 0, "it")
WIDE = Schema("The animal didn't cross the street because ", " was too wide.", ("The animal", "the street"), 1, "it")
