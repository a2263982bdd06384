"""ONNX's backend suite as a whole, on both backends: what becomes of each case is in
onnx_suite.txt, so that every change shows.

`pytest --update-golden` writes the list anew from what happened. Read the diff: a case that turned
wrong is a bug, no new line. Reasons of wrong cases are written by hand, and stay.
"""

from __future__ import annotations

import collections
import itertools
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import onnx_suite
from support.onnx_suite import BACKENDS, EXACT, Outcome

LIST = Path(__file__).with_name("onnx_suite.txt")
HEAD = """\
# Cases of ONNX's backend suite that do not pass as they are, the same on both backends, under what becomes of them and why. Those of kind
# `real` are downloads and are not run.
"""
NEEDS_PILLOW = "test_image_decoder"


def listed() -> dict[str, Outcome]:
    """Outcome by `<kind>/<name>` of each case on the list."""
    found, outcome = {}, None
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            assert outcome is not None
            found[line.strip()] = outcome
        elif line and not line.startswith("#"):
            outcome = Outcome(*line.split(": ", 1))
    return found


def written(outcomes: dict[str, Outcome]) -> str:
    """The list of these cases."""
    by_outcome = sorted(outcomes.items(), key=lambda item: (str(item[1]), item[0]))
    groups = itertools.groupby(by_outcome, key=lambda item: str(item[1]))
    return HEAD + "".join(
        "\n".join(["", outcome, *(f"    {name}" for name, _ in cases), ""])
        for outcome, cases in groups
    )


@pytest.fixture(scope="module")
def found():
    """What becomes of each case, by backend."""
    pytest.importorskip("onnx", minversion="1.23", reason="the list is that of a newer suite")
    # no dependency: the list says what happens without it
    without = NEEDS_PILLOW if find_spec("PIL") is not None else "nothing"
    return {
        f"{case.kind}/{case.name}": onnx_suite.outcomes(case)
        for case in onnx_suite.cases()
        if without not in case.name
    }


@pytest.mark.slow
def test_both_backends_give_the_suite_what_the_list_says(found, request):
    counts = {
        backend: collections.Counter(outcome[backend].what for outcome in found.values())
        for backend in BACKENDS
    }
    print(*(f"{backend}: {dict(counts[backend])}" for backend in BACKENDS), sep="\n")
    known = listed()
    if request.config.getoption("update_golden"):
        new = {name: both["numpy"] for name, both in found.items() if both["numpy"].what != EXACT}
        kept = {
            name: known[name]
            for name in new
            if name in known and known[name].what == new[name].what == onnx_suite.WRONG
        }
        kept |= {name: outcome for name, outcome in known.items() if name not in found}
        LIST.write_text(written(new | kept), encoding="utf-8")
        return
    exact = Outcome(EXACT)
    changed = [
        f"{name} on {backend}: {outcome}; the list says {known.get(name, exact).what}"
        for name, both in found.items()
        for backend, outcome in both.items()
        if outcome.what != known.get(name, exact).what
    ]
    assert not changed, "\n".join(changed)


def test_the_list_is_as_the_test_would_write_it():
    assert LIST.read_text(encoding="utf-8") == written(listed())
    assert not [name for name, outcome in listed().items() if outcome.what == onnx_suite.CRASHED]
