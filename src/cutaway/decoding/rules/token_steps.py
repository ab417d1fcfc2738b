"""Where each token of a vocabulary leads an automaton: byte by byte, but all tokens at once.

A reading of the automaton has a number here, and `to[number, byte]` is the number of the next one: found when it is
first asked for, and kept. The tokens of 50,000 are then followed in milliseconds, whatever may come next.
"""

from threading import Lock

import numpy as np
from numpy.typing import NDArray

from cutaway.decoding.rules.regex_automaton import Automaton, Reading
from cutaway.decoding.rules.token_bytes import Pieces
from cutaway.errors import InputError

NOWHERE, UNKNOWN = -1, -2
MOST_READINGS = 8192  # a kilobyte each; when there are more, all are found anew
MOST_STATES = 50_000  # in all readings: the same, and an expression that needs twice as many at once is refused


class TokenSteps:
    """The readings of an automaton that were reached so far, and the bytes between them."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.lock = Lock()  # engines of several threads may follow one expression
        self.readings: list[Reading] = []
        self.numbers: dict[Reading, int] = {}
        self.to: NDArray[np.int32] = np.full((16, 256), UNKNOWN, dtype=np.int32)
        self.n_states = 0

    def ends(self, reading: Reading, pieces: Pieces) -> list[tuple[Reading, NDArray[np.int64]]]:
        """The readings that whole tokens lead to, with the ids of these tokens."""
        with self.lock:
            if len(self.readings) > MOST_READINGS or self.n_states > MOST_STATES:
                self._forget()
            data, starts, lengths = pieces.joined
            state = np.where(lengths > 0, self._number(reading), NOWHERE)
            alive = np.flatnonzero(lengths)
            place = 0
            while len(alive):
                state[alive] = self._after(state[alive], data[starts[alive] + place])
                place += 1
                alive = alive[(lengths[alive] > place) & (state[alive] != NOWHERE)]
            order = np.argsort(state, kind="stable")
            numbers, first = np.unique(state[order], return_index=True)
            groups = np.split(order, first[1:])
            return [(self.readings[n], ids) for n, ids in zip(numbers, groups, strict=True) if n != NOWHERE]

    def _after(self, numbers: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.int32]:
        new = self.to[numbers, data] == UNKNOWN
        for pair in np.unique(numbers[new] * 256 + data[new]):
            number, byte = divmod(int(pair), 256)
            after = self.automaton.after_byte(self.readings[number], byte)
            value = NOWHERE if after is None else self._number(after)  # which may make `to` longer
            self.to[number, byte] = value
        return self.to[numbers, data]

    def _number(self, reading: Reading) -> int:
        number = self.numbers.setdefault(reading, len(self.readings))
        if number == len(self.readings):
            self.readings.append(reading)
            self.n_states += 0 if reading[1] else len(reading[0])  # inside a character they are those before it
            if self.n_states > 2 * MOST_STATES:
                self._forget()
                raise InputError(
                    "allow: the expression can be read in too many ways at once: let fewer repeats overlap"
                )
            if number == len(self.to):
                self.to = np.concatenate([self.to, np.full_like(self.to, UNKNOWN)])
        return number

    def _forget(self) -> None:
        self.readings, self.numbers, self.n_states = [], {}, 0
        self.to = np.full((16, 256), UNKNOWN, dtype=np.int32)
