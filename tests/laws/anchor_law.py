"""The anchor law: what a session computes lies where the exact integers say, twice the same bytes,
and is what NumPy computes.

    python -m laws.anchor_law BACKEND FIRST MODELS [even]

prints what breaks it, in a process whose environment may limit the instruction set.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from laws.exact_anchors import KINDS, Anchor, draw, model_of

import fqfuse
from fqfuse.runtime.lowering.executor import OneDnnExecutor
from fqfuse.runtime.session import InferenceSession

_OF_EACH = 4
PER_MODEL = _OF_EACH * len(KINDS)
"""Anchors of a model."""


def drawn(seed: int, *, even: bool = False) -> list[Anchor]:
    """The anchors of a model: some of each kind."""
    return [
        draw(kind, _OF_EACH * seed + index, even=even)
        for kind in KINDS
        for index in range(_OF_EACH)
    ]


def threads_of(seed: int) -> int:
    """How many threads a model's sessions have: kernels part their work by it."""
    return 1 + seed % 4


def broken(
    anchors: Sequence[Anchor], backend: str, threads: int, *, bitwise: bool = False
) -> list[str]:
    """What breaks the law.

    Args:
        anchors: they share a model.
        backend: of the session.
        threads: of the session.
        bitwise: hold it to the bytes of the NumPy runtime, too, but where sums of floats have no
            order.
    """
    try:
        results = _results(anchors, backend, threads, bitwise=bitwise)
    except Exception as error:  # noqa: BLE001 - whatever it is, it breaks the law, and one of many anchors is to blame
        if len(anchors) == 1:
            return [f"{anchors[0]}\n    {type(error).__name__}: {error}"]
        return [
            text
            for anchor in anchors
            for text in broken([anchor], backend, threads, bitwise=bitwise)
        ]
    found = zip(anchors, *results, strict=True)
    return [
        f"{anchor}\n    {text}"
        for anchor, *arrays in found
        for text in _complaints(anchor, *arrays)
    ]


def _complaints(
    anchor: Anchor, found: np.ndarray, again: np.ndarray, numpy: np.ndarray
) -> list[str]:
    if found.shape != anchor.low.shape:
        return [f"shape {found.shape} instead of {anchor.low.shape}"]
    wrong = anchor.wrong(found)
    if wrong.any():
        at = tuple(int(v) for v in np.argwhere(wrong)[0])
        return [
            f"{wrong.sum()} of {wrong.size} wrong; at {at} {found[at]}, not {anchor.low[at]}..{anchor.high[at]}"
        ]
    if found.tobytes() != again.tobytes():
        return ["other bytes the second time"]
    if not anchor.floats and not np.array_equal(found, numpy):  # the sign of a zero does not count
        return [f"{(found != numpy).sum()} of {found.size} are not NumPy's"]
    return []


def _results(
    anchors: Sequence[Anchor], backend: str, threads: int, *, bitwise: bool
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The outputs of two runs, the second in poisoned memory; and those of the NumPy runtime where
    they are asked for.
    """
    model, feeds = model_of(anchors)
    plan = fqfuse.compile(model)
    session = InferenceSession(plan, backend, threads)
    first = session.run(None, feeds)
    poison(session, 0x7F if len(feeds) % 2 else 0xFF)  # a large float, or NaN
    return (
        first,
        session.run(None, feeds),
        InferenceSession(plan, "numpy", 1).run(None, feeds) if bitwise else first,
    )


def poison(session: InferenceSession, byte: int) -> None:
    """Fills the memory that the session's next run will use."""
    if isinstance(session._executor, OneDnnExecutor):
        for bound in session._executor._state.programs:
            for run in bound.idle:
                run._arena[...] = byte
                assert run._scratchpad.data is not None
                run._scratchpad.data[...] = byte


def main() -> None:
    """As the module says."""
    backend, first, models = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + models):
        for text in broken(drawn(seed, even="even" in sys.argv[4:]), backend, threads_of(seed)):
            print(text)
    print(f"{models * PER_MODEL} anchors")


if __name__ == "__main__":
    main()
