"""ONNX's own node tests, imported: nearly two thousand models, each a use of an op, of every opset
that introduced or changed it.
"""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
from support.onnx_cases import run_import

from fqfuse.errors import InvalidInput, UnsupportedOp
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.verify import IMPORTED, check

# What fqfuse refuses, in the words of its messages. Anything else that is refused is a fault.
REFUSED = (
    "the element type float8",
    "the element type float4",
    "the element type int2",
    "the element type uint2",
    "quantizing to 4 bits",
    "is no tensor but",
    "Scan of opset 8",
)


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        # the suite computes its expectations with NumPy, infinities and all
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    if found[0].model is None:
        pytest.skip(
            "this version of onnx keeps its tests in files; newer ones build them in memory"
        )
    return found


@pytest.mark.slow
def test_every_model_is_imported_or_refused_for_a_known_reason(cases):
    outcome, surprises = Counter(), []
    for case in cases:
        try:
            graph = graph_from_onnx(case.model)
        except UnsupportedOp as error:
            outcome["refused"] += 1
            if not any(words in error.what for words in REFUSED):
                surprises.append(f"{case.name}: {error}")
        else:
            check(graph, IMPORTED)
            outcome[
                "by rows alone"
                if all(node.op != "Onnx" for node in graph.nodes())
                else "with foreign ops"
            ] += 1
    print(dict(outcome))
    assert not surprises
    assert outcome["refused"] < 0.1 * len(cases)


@pytest.mark.slow
def test_types_that_are_stated_hold_at_run_time(cases):
    """Wherever all ops have rows and all feeds are plain arrays: the shapes of the outputs are
    those of their types.
    """
    held = 0
    for case in cases:
        try:
            graph = graph_from_onnx(case.model)
        except UnsupportedOp:
            continue
        feeds = dict(
            zip(
                (value.name for value in case.model.graph.input), case.data_sets[0][0], strict=False
            )
        )
        if any(node.op == "Onnx" for node in graph.nodes()) or not all(
            _plain(graph, name, feeds) for name in graph.inputs
        ):
            continue
        try:
            _, results = run_import(case.model, {name: feeds[name] for name in graph.inputs})
        except InvalidInput:  # a fault of a row, for its own tests to find
            continue
        for name, array in zip(graph.outputs, results, strict=True):
            shape = graph.type(name).shape
            assert shape is None or len(shape) == array.ndim, case.name
            assert shape is None or all(
                isinstance(d, str) or d == n for d, n in zip(shape, array.shape, strict=True)
            ), case.name
            assert array.dtype == graph.type(name).dtype.numpy, case.name
        held += 1
    assert held > 700


def _plain(graph, name, feeds):
    fed = feeds.get(name)  # none of what holds a sequence
    return hasattr(fed, "dtype") and fed.dtype == graph.type(name).dtype.numpy
