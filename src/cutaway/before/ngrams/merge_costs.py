"""The tables behind Brown clusters: what each merge of two clusters would cost, kept up to date step by step.

How much a word's cluster says about the next one's, in nats times the number of pairs N, over the clusters in view:

    I = Σ n(a,b) ln (N n(a,b) / (l(a) r(b)))       n: how often a word of a stands before one of b
                                                   l, r: how often a word of a stands left, and right, in any pair

With f(x) = x ln x, a merge of a and b adds f(n(a,c) + n(b,c)) − f(n(a,c)) − f(n(b,c)) for every other cluster c, the
same for n(c,·), and what becomes of the four numbers among a and b themselves; the margins l and r take more than
that away. The sums over c are what takes long, so they are kept (`shared`). A merge, or one more cluster, changes one
term of each, and no term where a or b never stands beside c. (Brown et al. 1992, section 3; Liang 2005.)
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

TIE = 1e-10  # nats a pair: losses that differ by less are equal but for rounding, and the first pair is merged

Numbers = np.ndarray | np.float64
Row = Float64[np.ndarray, " slot"]
Square = Float64[np.ndarray, "slot slot"]


class MergeCosts:
    """Clusters in slots. `pairs[a, b]` is n(a, b), `total` N. Slots that may not merge are empty, or stay as they are.
    `information` is I."""

    def __init__(
        self, pairs: Square, left: Row, right: Row, may_merge: Bool[np.ndarray, " slot"], total: float
    ) -> None:
        size, self.total = len(pairs), total
        self.pairs, self.left, self.right, self.may_merge = pairs, left, right, may_merge
        self.f_pairs = f(pairs)
        self.shared, self.among, self.log_left, self.log_right = (np.zeros((size, size)) for _ in range(4))
        self.order = np.where(np.tri(size, dtype=bool), np.inf, 0.0)  # each pair of slots once, the lower one first
        for slot in range(size):
            self._renew(slot)
        self.information = sum(self._cells(slot).sum() for slot in range(size))

    def add(self, slot: int, before: Row, behind: Row, left: float, right: float) -> None:
        """Puts a cluster into an empty slot; `before[c]` is n(c, slot) and `behind[c]` n(slot, c)."""
        self.pairs[:, slot], self.pairs[slot] = before, behind
        self.left[slot], self.right[slot], self.may_merge[slot] = left, right, True
        self._look_at(slot, 1)
        self._renew(slot)
        self.information += self._cells(slot).sum() + self._cells(slot, True).sum() - self._cells(slot)[slot]

    def losses(self) -> Square:
        """The loss of I by each merge; ∞ for forbidden ones, and below the diagonal."""
        margin = self._margins()
        one, other = self.pairs.sum(1), self.pairs.sum(0)
        loss = (one[:, None] + one) * self.log_left
        loss += (other[:, None] + other) * self.log_right
        loss -= margin[:, None] + margin
        loss -= self.shared
        loss -= self.among
        loss += self.order
        loss[~self.may_merge] = loss[:, ~self.may_merge] = np.inf
        return loss

    def best(self) -> tuple[int, int, float]:
        """The two slots whose merge loses least, and the loss; the first of equal ones."""
        loss = self.losses()
        a, b = divmod(int((loss <= loss.min() + TIE * self.total).argmax()), len(loss))
        return a, b, float(loss[a, b])

    def merge(self, a: int, b: int, loss: float) -> None:
        """Merges cluster b into a."""
        self._look_at(a, -1)
        self._look_at(b, -1)
        for table in (self.pairs, self.pairs.T):
            table[a] += table[b]
            table[b] = 0
        for margin in (self.left, self.right):
            margin[a] += margin[b]
            margin[b] = 0
        self.may_merge[b] = False
        self._look_at(a, 1)
        self._renew(b)
        self._renew(a)
        self.information -= loss

    def _cells(self, slot: int, turned: bool = False) -> Row:
        """The terms of I in a row or column."""
        table, own, others = (self.pairs.T, self.right, self.left) if turned else (self.pairs, self.left, self.right)
        return f(table[slot]) + table[slot] * (np.log(self.total) - ln(own[slot]) - ln(others))

    def _margins(self) -> Row:
        """What the margins take from I, by cluster."""
        return self.pairs.sum(1) * ln(self.left) + self.pairs.sum(0) * ln(self.right)

    def _look_at(self, slot: int, sign: int) -> None:
        """Adds the terms of c = slot to all sums, or subtracts them."""
        for beside in (self.pairs[:, slot], self.pairs[slot]):
            seen = np.flatnonzero(beside)
            some = beside[seen]
            alone = f(some)
            terms = f(some[:, None] + some) - alone[:, None] - alone
            self.shared[np.ix_(seen, seen)] += sign * terms

    def _renew(self, slot: int) -> None:
        """Recomputes everything about a slot and each other one."""
        self.f_pairs[slot], self.f_pairs[:, slot] = f(self.pairs[slot]), f(self.pairs[:, slot])
        sums = np.zeros(len(self.pairs))
        for table, f_table in ((self.pairs, self.f_pairs), (self.pairs.T, self.f_pairs.T)):
            seen = np.flatnonzero(table[slot])
            both = f(table[:, seen] + table[slot, seen])
            sums += (both - f_table[:, seen]).sum(1) - f_table[slot, seen].sum()
        self.shared[slot] = self.shared[:, slot] = sums
        self.among[slot] = self.among[:, slot] = self._among(slot)
        self.log_left[slot] = self.log_left[:, slot] = ln(self.left[slot] + self.left)
        self.log_right[slot] = self.log_right[:, slot] = ln(self.right[slot] + self.right)

    def _among(self, a: int) -> Row:
        """The four numbers among two clusters become one; `shared` has taken them for pairs with a third."""
        aa, ab, ba, bb = self.pairs[a, a], self.pairs[a], self.pairs[:, a], self.pairs.diagonal()
        apart = f(aa) + f(ab) + f(ba) + f(bb)
        return f(aa + ab + ba + bb) + apart - f(aa + ab) - f(aa + ba) - f(ab + bb) - f(ba + bb)


def f(x: Numbers) -> Any:
    return x * ln(x)


def ln(x: Numbers) -> Any:
    """ln of integers; ln 0 is only ever multiplied by 0, and is 0 here."""
    return np.log(np.maximum(x, 1.0))
