"""Whether a run takes all threads or one: which of the two is faster just now.

OpenMP's threads meet behind each primitive. Where another program takes a processor from one of
them, the others wait there, and a network of 60 primitives may take 60 of the system's time slices.
One thread waits for nobody. And where a primitive takes few microseconds, meeting takes longer than
a second thread saves: one token of a block of GPT-2 takes 150 us with one thread, and 200 with two.
"""

from __future__ import annotations

import threading
from collections import deque
from statistics import median

from ...onednn.enums import Arg
from ...plan.types import Plan
from ..placement import Placement
from .decoder import PartsAction
from .faster import sums_dots
from .program import Action, PrimitiveAction, Program

_PRODUCTS = ("convolution", "deconvolution", "matmul", "rnn")
_ONE_BY_ONE = ("reorder", "binary", "eltwise", "concat")
"""What stands around a product, and computes each element by itself."""
_TRIAL = 3, 25
_TRIAL_SECONDS = 0.01
"""A trial takes so many runs: at least, and as many more, up to the second number, as fill the time.
"""
_SHORT = 0.001, 20e-6
"""Seconds of a run, and for each of its actions: what takes longer gains by all threads, on an idle
machine.
"""
_STAY = 0.1, 5.0
"""Seconds with one thread before all are tried again: at first, and at most (each trial in vain
doubles them).
"""
_WORTH = 10  # runs with one thread that may be lost before they are tried again


def alike_with_any_threads(plan: Plan, program: Program) -> bool:
    """Whether a run has the same bytes with any number of threads.

    A sum of integers has, and a sum of floats by a kernel that leaves it whole: brgemm's matrix
    products of rows do (3,756 random ones with 1, 2, 3 and 8 threads), and `gemm`'s of single rows and
    columns of their own (`sums_dots`); brgemm's products of columns, its convolutions and `gemm` else cut
    sums in parts by that number.
    """
    actions: dict[int, list[Action]] = {}
    for action, index in zip(program.actions, program.steps, strict=True):
        actions.setdefault(index, []).append(action)
    return all(
        _sums_codes(plan, where)
        or where.runtime == "numpy"
        or (where.step.primitive == "matmul" and all(map(_sums_whole, actions.get(index, ()))))
        for index, where in enumerate(program.placements)
        if where.step.primitive in _PRODUCTS
    )


def gives_the_same(plan: Plan, program: Program, other: Program) -> bool:
    """Whether the other one, bound for another number of threads, has the bytes of the first one, which is
    `alike_with_any_threads`: as that one, and by the same kernels where floats are summed.
    """
    return alike_with_any_threads(plan, other) and all(
        one.implementation == two.implementation or _sums_codes(plan, one)
        for one, two in zip(program.placements, other.placements, strict=True)
        if one.step.primitive in _PRODUCTS
    )


def _sums_codes(plan: Plan, where: Placement) -> bool:
    factors = [value for role, value in where.step.args if role in ("src", "weights")]
    return all(plan.type(value).dtype.is_integer for value in factors)


def _sums_whole(action: Action) -> bool:
    """Whether an action of a matrix product of floats gives each sum to one thread."""
    if isinstance(action, PartsAction):
        return False  # as wide as the threads are many: kernels cut sums by width, brgemm's, too
    if not isinstance(action, PrimitiveAction):
        return True  # kernels of our own
    desc = action.primitive.desc
    if desc.kind != "matmul":
        return desc.kind in _ONE_BY_ONE
    if desc.impl_info.startswith("gemm:jit"):
        return sums_dots(desc)
    source = action.args[Arg.SRC].desc
    rows = source.is_plain and (source.strides[-1] == 1 or source.dims[-1] == 1)
    return rows and desc.impl_info.startswith("brg:")


class Pace:
    """Chooses for each run of a program that is bound for all threads, and for one where that pays.

    One thread is tried when all have waited for as long as it takes to bind the program again, so that
    at most twice the least is lost; of a short program when it has run for as long. What is faster in
    the median of a trial stays; all threads are tried again from time to time.

    Args:
        price: how long it takes to bind the program for one thread, in seconds.
        actions: how many the program has.
    """

    def __init__(self, price: float, actions: int) -> None:
        self.alone = False
        """Whether the next run takes one thread."""
        self._price = price
        self._short = max(_SHORT[0], _SHORT[1] * actions)
        self._waited = self._ran = 0.0
        self._recent = {alone: deque[float](maxlen=_TRIAL[1]) for alone in (False, True)}
        self._trial = self._left = 0  # runs of it, and those that are left
        self._stay = _STAY[0]
        self._look = 0.0
        self._lock = threading.Lock()

    def took(self, *, alone: bool, seconds: float, waited: float, now: float) -> None:
        """What a run took.

        Args:
            alone: with one thread.
            seconds: by the clock.
            waited: for how much of that its calling thread did not compute.
            now: by the same clock, behind the run.
        """
        with self._lock:
            self._took(alone, seconds, waited, now)

    def _took(self, alone: bool, seconds: float, waited: float, now: float) -> None:
        self._recent[alone].append(seconds)
        if alone != self.alone:
            return  # of another caller, who chose before this one
        if self._left:
            self._left -= 1
            if not self._left:
                self._judge(now)
        elif alone:
            if now >= self._look:
                self._try(alone=False)
        else:
            self._waited = self._waited + waited if waited > seconds / 2 else self._waited / 2
            if seconds < self._short and not self._recent[True]:
                self._ran += seconds
            if max(self._waited, self._ran) > self._price:
                self._try(alone=True)

    def _try(self, *, alone: bool) -> None:
        least, most = _TRIAL
        last = self._recent[self.alone][-1]
        self.alone = alone
        self._trial = self._left = max(least, min(most, round(_TRIAL_SECONDS / last)))

    def _judge(self, now: float) -> None:
        """Behind a trial: the faster stays."""
        tried = self.alone
        one, many = (median(list(self._recent[alone])[-self._trial :]) for alone in (True, False))
        self.alone = one < many
        self._waited = 0.0
        if not self.alone:
            self._price = _WORTH * one if not tried else 2 * max(self._price, _WORTH * one)
            self._stay = _STAY[0]
        else:
            if not tried:
                self._stay = min(2 * self._stay, _STAY[1])
            self._look = now + self._stay
