"""Whether a run takes all threads or one: which of the two is faster just now.

OpenMP's threads meet behind each primitive. Where another program takes a processor from one of
them, the others wait there, and a network of 60 primitives may take 60 of the system's time slices.
One thread waits for nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from ...plan.types import Plan
from ..placement import Placement

_PRODUCTS = ("convolution", "deconvolution", "matmul", "rnn")
_WHOLE = ("brg:", "packed ")
"""Kernels of matrix products that give each sum to one thread, whole."""
_TRIAL = 3  # runs
_STAY = 0.1, 5.0
"""Seconds with one thread before all are tried again: at first, and at most (each trial in vain
doubles them).
"""
_WORTH = 10  # runs with one thread that may be lost before they are tried again


def alike_with_any_threads(plan: Plan, placements: Sequence[Placement]) -> bool:
    """Whether a run has the same bytes with any number of threads, bound as it is.

    A sum of integers has, and a sum of floats by a kernel that leaves it whole: brgemm's matrix
    products do (3,756 random ones with 1, 2, 3 and 8 threads), its convolutions and `gemm` do not.
    """
    return all(_alike(plan, where) for where in placements)


def _alike(plan: Plan, where: Placement) -> bool:
    step = where.step
    factors = [value for role, value in step.args if role in ("src", "weights")]
    if step.primitive not in _PRODUCTS or where.runtime == "numpy":
        return True
    if all(plan.type(value).dtype.is_integer for value in factors):
        return True
    kernels = where.implementation.split(" + ")
    return step.primitive == "matmul" and any(name.startswith(_WHOLE) for name in kernels)


class Pace:
    """Chooses for each run of a program that is bound for all threads, and for one where that pays.

    All threads are left when the time that they have waited is as long as it takes to bind the
    program again, so that at most twice the least is lost. Whichever of three runs is faster stays;
    all threads are tried again from time to time.

    Args:
        price: how long it takes to bind the program for one thread, in seconds.
    """

    def __init__(self, price: float) -> None:
        self.alone = False
        """Whether the next run takes one thread."""
        self._price = price
        self._waited = 0.0
        self._recent = {alone: deque[float](maxlen=_TRIAL) for alone in (False, True)}
        self._trial = 0  # runs of it that are left
        self._stay = _STAY[0]
        self._look = 0.0

    def took(self, *, alone: bool, seconds: float, waited: float, now: float) -> None:
        """What a run took.

        Args:
            alone: with one thread.
            seconds: by the clock.
            waited: for how much of that its calling thread did not compute.
            now: by the same clock, behind the run.
        """
        self._recent[alone].append(seconds)
        if alone != self.alone:
            return  # of another caller, who chose before this one
        if self._trial:
            self._trial -= 1
            if not self._trial:
                self._judge(now)
        elif alone:
            if now >= self._look:
                self._try(alone=False)
        else:
            self._waited = self._waited + waited if waited > seconds / 2 else self._waited / 2
            if self._waited > self._price:
                self._try(alone=True)

    def _try(self, *, alone: bool) -> None:
        self.alone, self._trial = alone, _TRIAL

    def _judge(self, now: float) -> None:
        """Behind a trial: the faster stays."""
        tried, one = self.alone, median(self._recent[True])
        self.alone = one < median(self._recent[False])
        self._waited = 0.0
        if not self.alone:
            self._price = _WORTH * one if not tried else 2 * max(self._price, _WORTH * one)
            self._stay = _STAY[0]
        else:
            if not tried:
                self._stay = min(2 * self._stay, _STAY[1])
            self._look = now + self._stay
