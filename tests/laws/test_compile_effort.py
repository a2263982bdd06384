"""Law: compile effort is linear. A chain of twice the length takes twice the calls, from the file's
bytes to the plan and the session.

Calls of Python functions are counted, not seconds: the same on every machine. A pass that sorts the
graph again for each edit, or a chain that is walked again for each operation, has a ratio of 3 to
4.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest
from laws.growing import GROWING, joined

import fqfuse
from fqfuse.benchmarks.networks.chain import build_chain
from fqfuse.benchmarks.networks.plain_chains import PLAIN_CHAINS, build_plain_chain

SHORT = 100
"""Nodes of the shorter chain: past what any rule looks at in one piece, and what one primitive
takes.
"""

LINEAR = 2.2
"""Twice, and a tenth for what comes in pieces: a step takes 32 post-ops."""

LINEAR_EACH = 2.5
"""For one function that is called once for each node or more: pieces tell more in a part than in
the whole.
"""


def calls(work: Callable[[], object]) -> Counter[CodeType]:
    """How often each Python function was called or resumed."""
    found: Counter[CodeType] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[frame.f_code] += 1

    gc.collect()  # what other tests left is none of this work
    sys.setprofile(count)
    threading.setprofile(count)  # a session is bound in a thread of its own
    try:
        work()
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return found


def check_linear(work: Callable[[bytes], object], build: Callable[[int], Any], short: int) -> None:
    """Calls for the longer chain over those for the shorter one, and the functions that grow most
    where they are too many.
    """
    files = [build(length).SerializeToString() for length in (short, 2 * short)]
    work(files[0])  # fills caches and imports, which nobody counts
    first, second = (calls(lambda file=file: work(file)) for file in files)
    grown = [
        code for code, times in second.items() if times > max(LINEAR_EACH * first[code], 2 * short)
    ]
    worst = sorted(grown, key=second.__getitem__, reverse=True)[:5]
    assert not grown, ", ".join(
        f"{code.co_qualname} {first[code]} -> {second[code]}" for code in worst
    )
    assert second.total() <= LINEAR * first.total()


@pytest.mark.parametrize("kind", PLAIN_CHAINS)
def test_twice_the_chain_takes_twice_the_calls(kind: str) -> None:
    check_linear(fqfuse.compile, lambda length: build_plain_chain(kind, length), SHORT)


@pytest.mark.parametrize(
    "kind", ["mul-add", "equal-qdq", "different-qdq", "shared-operand", "reshape-sigmoid"]
)
def test_twice_the_chain_behind_a_convolution_takes_twice_the_calls(kind: str) -> None:
    check_linear(
        fqfuse.compile,
        lambda length: build_plain_chain(kind, length, behind_convolution=True),
        SHORT,
    )


def test_twice_the_convolutions_take_twice_the_calls() -> None:
    check_linear(fqfuse.compile, build_chain, SHORT // 5)


@pytest.mark.parametrize("kind", GROWING)
def test_twice_the_width_or_depth_takes_twice_the_calls(kind: str) -> None:
    check_linear(fqfuse.compile, GROWING[kind], SHORT)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize("kind", PLAIN_CHAINS)
def test_twice_the_steps_take_twice_the_calls_to_a_session(kind: str, backend: str) -> None:
    check_linear(
        lambda file: fqfuse.InferenceSession(file, backend=backend),
        lambda length: build_plain_chain(kind, length),
        SHORT,
    )


@pytest.mark.slow  # lists of 16,000
@pytest.mark.parametrize("one", [False, True])
def test_four_times_the_list_takes_no_more_than_eight_times_the_processor(*, one: bool) -> None:
    """No call is seen where a list of arguments is searched once for each of them. 4 if linear, 16 if
    quadratic: a busy machine does not make one of the other.
    """
    files = [joined(count, one=one).SerializeToString() for count in (4_000, 16_000)]
    fqfuse.compile(files[0])
    taken = []
    for file in files:
        gc.collect()
        start = time.process_time()
        fqfuse.compile(file)
        taken.append(time.process_time() - start)
    assert taken[1] <= 8 * taken[0]
