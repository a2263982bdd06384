"""The layout law: wherever a value lies, and whatever lies around it, each runtime computes the
same, and what the model says.

The oracle is ONNX Runtime without optimizations. Each model runs three times, in memory poisoned
with another byte each time: the results are the same to the bit, and nothing is written around a
buffer.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import settings
from laws import poison
from laws.budget import some
from laws.layouts import Case, draw_case
from laws.runtimes import RUNTIMES
from onnx import helper, numpy_helper
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.plan.types import Plan

FUZZ = not settings.default.derandomize
CASES = 100_000 if FUZZ else 2_000
BLOCKS = 20
USUAL = 2
"""Blocks of a usual run; the others are slow."""


def broken(case: Case) -> str:
    """How the law is broken; empty where it holds."""
    expected = run_ort(case.model, case.feeds)
    try:
        plan = fqfuse.compile(case.model)
        for runtime in RUNTIMES:
            difference = differs(plan, runtime, case, expected)
            if difference:
                return difference
    except Exception as error:  # noqa: BLE001 - a crash is a finding like others, to be made smaller
        return f"{type(error).__name__}: {error}"
    return ""


def differs(plan: Plan, runtime: str, case: Case, expected: list[np.ndarray]) -> str:
    """How three runs differ from each other, or from what is expected; empty where they do not."""
    before: list[np.ndarray] = []
    # which promises exactness on a CPU without VNNI, too
    backend = "auto" if runtime == "onednn" else runtime
    for number, byte in enumerate(poison.BYTES):
        with poison.poisoned(byte, apart=number > 0):
            feeds = {name: poison.guarded(array, byte) for name, array in case.feeds.items()}
            results = fqfuse.InferenceSession(plan, backend, case.threads).run(None, feeds)
        for name, result, other in zip(plan.outputs, results, before or results, strict=True):
            if result.tobytes() != other.tobytes():
                return f"{runtime}: {name} is not the same in each run: it tells what lay in memory"
        before = results
    for name, result, wanted in zip(plan.outputs, before, expected, strict=True):
        if result.shape != wanted.shape or result.dtype != wanted.dtype:
            return f"{runtime}: {name} is {result.dtype}{list(result.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        far = np.abs(result.astype(np.float64) - wanted.astype(np.float64))
        if not np.all(far <= case.errors[name]):
            return f"{runtime}: {np.count_nonzero(far > case.errors[name])} elements of {name} are up to {np.nanmax(far)} off"
    return ""


def smaller(case: Case) -> Iterator[Case]:
    """What remains of a case with one output only, with a value fed that was computed, or with a
    node's input for its output.
    """
    nodes = list(case.model.graph.node)
    names = [name for node in nodes for name in node.output if name]
    known = dict(zip(names, run_ort(_extracted(case, names, {}).model, case.feeds), strict=True))
    for name in names:
        yield _extracted(case, [name], {})
    for name in reversed([name for name in names if name not in case.outputs]):
        yield _extracted(case, case.outputs, {name: known[name]})


def _extracted(case: Case, outputs: list[str], fed: dict[str, np.ndarray]) -> Case:
    graph = case.model.graph
    needed, kept = set(outputs), list[onnx.NodeProto]()
    for part in reversed(graph.node):
        if any(name in needed and name not in fed for name in part.output):
            kept.insert(0, part)
            needed.update(part.input)
    feeds = {
        **{name: array for name, array in case.feeds.items() if name in needed},
        **{n: a for n, a in fed.items() if n in needed},
    }
    given = [info for info in graph.input if info.name in needed]
    given += [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in fed.items()
        if name in needed
    ]
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    small = helper.make_graph(
        kept, "drawn", given, [onnx.ValueInfoProto(name=name) for name in outputs], constants
    )
    proto = helper.make_model(small, opset_imports=case.model.opset_import, ir_version=10)
    return Case(proto, feeds, case.errors, outputs, case.threads)


def shrunk(case: Case) -> Case:
    """The smallest case found that breaks the law."""
    size = len(case.model.graph.node)
    for less in smaller(case):
        if 0 < len(less.model.graph.node) < size and broken(less):
            return shrunk(less)
    return case


def hold(seed: int) -> None:
    case = draw_case(seed)
    if broken(case):
        small = shrunk(case)
        shapes = {name: list(array.shape) for name, array in small.feeds.items()}
        text = onnx.printer.to_text(small.model)
        constants = {
            t.name: numpy_helper.to_array(t).tolist()
            for t in small.model.graph.initializer
            if np.prod(t.dims) <= 16
        }
        pytest.fail(
            f"seed {seed}: {broken(small)}\nfed: {shapes}, {constants}\n{text}", pytrace=False
        )


def found(
    nodes: list[onnx.NodeProto],
    shapes: dict[str, list[int | str]],
    constants: dict[str, object],
    size: int = 1,
) -> Case:
    """A case of small whole numbers that must come out exactly; `size` is what symbols stand
    for.
    """
    rng = np.random.default_rng(0)
    proto = model(nodes, inputs=shapes, constants=constants)
    static = {
        name: [size if isinstance(dim, str) else dim for dim in shape]
        for name, shape in shapes.items()
    }
    return Case(
        proto,
        {name: rng.integers(-8, 9, shape).astype(np.float32) for name, shape in static.items()},
        {"y": 0.0},
        ["y"],
    )


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-8, 9, shape).astype(np.float32)


NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
FOUND = {
    "a constant along the only axis": found(
        [node("Max", ["a", "b"], ["m"]), node("Max", ["m", "c"])],
        {"a": [5], "b": [5]},
        {"c": floats(5)},
    ),
    "no elements to decode": found(
        [
            node("QuantizeLinear", ["x", "s"], ["q"]),
            node("DequantizeLinear", ["q", "s"], ["d"]),
            node("Add", ["d", "c"]),
        ],
        {"x": [0, 1]},
        {"s": np.float32(0.5), "c": floats(0, 1)},
    ),
    "a normalization of unknown length": found(
        [node("LayerNormalization", ["x", "s", "b"], ["l"], epsilon=1.0), node("Add", ["l", "l"])],
        {"x": [2, 3, "k"]},
        {"s": floats(1), "b": floats(1)},
    ),
    "codes added to twice themselves": found(
        [
            node("QuantizeLinear", ["x", "s"], ["q"]),
            node("DequantizeLinear", ["q", "s"], ["d"]),
            node("MaxPool", ["d"], ["m"], kernel_shape=[1, 3], strides=[2, 1]),
            node("Reshape", ["m", "p"], ["r"]),
            node("Add", ["r", "r"], ["a"]),
            node("Add", ["a", "r"]),
        ],
        {"x": [1, 1, 5, 5]},
        {"s": np.float32(1), "p": np.array([1, 3, -1, 1, 3])},
    ),
    "the second piece under another shape": found(
        [
            node("Split", ["x", "p"], ["a", "b"]),
            node("Reshape", ["b", "s"], ["v"]),
            node("Conv", ["v", "w"]),
        ],
        {"x": ["n"]},
        {"p": np.array([3, 2]), "s": np.array([2, 1, 1]), "w": floats(1, 1, 1)},
        size=5,
    ),
    "another shape of what data decides": found(
        [
            node("Compress", ["x", "c"], ["p"]),
            node("Reshape", ["p", "s"], ["v"]),
            node("Conv", ["v", "w"]),
        ],
        {"x": [5]},
        {
            "c": np.array([True, False, True, False, False]),
            "s": np.array([1, 1, 2]),
            "w": floats(1, 1, 1),
        },
    ),
    "one vector resampled": found(
        [node("Resize", ["x", "", "s"], ["r"], mode="nearest", **NEAREST), node("Mul", ["c", "r"])],
        {"x": [1, 2, 1]},
        {"s": np.ones(3, np.float32), "c": np.array([[[1.75], [-1.75]]], np.float32)},
    ),
    "blocks of channels that are not full": found(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1]),
            node("Relu", ["c"], ["r"]),
            node("Add", ["r", "c"], ["a"]),
            node("QuantizeLinear", ["a", "s"], ["q"]),
            node("DequantizeLinear", ["q", "s"]),
        ],
        {"x": [12, 1, 2]},
        {"w": floats(2, 1, 2), "s": np.float32(2)},
    ),
    "one row resampled": found(
        [node("Resize", ["x", "", "s"], ["r"], mode="nearest", **NEAREST), node("Add", ["r", "c"])],
        {"x": [2, 5, 1]},
        {"s": np.array([1, 1, 2], np.float32), "c": floats(2)},
    ),
    "an operand for each sample and channel behind a resize": found(
        [
            node("Concat", ["x", "x", "c"], ["j"], axis=2),
            node("Resize", ["j", "", "s"], ["r"], mode="linear"),
            node("Reshape", ["r", "p"], ["v"]),
            node("Add", ["v", "b"]),
        ],
        {"x": [2, 2, 1]},
        {
            "c": floats(2, 2, 2),
            "s": np.ones(3, np.float32),
            "p": np.array([4, 1, 4, 1, 1]),
            "b": floats(4, 1, 1, 1, 1),
        },
    ),
    "a vector of channels and one of samples behind a resize": found(
        [
            node("Transpose", ["x"], ["t"], perm=[1, 0, 3, 2]),
            node("Resize", ["t", "", "s"], ["r"], mode="nearest", **NEAREST),
            node("Add", ["c", "r"], ["a"]),
            node("Add", ["a", "b"]),
        ],
        {"x": [5, 5, 1, 2], "b": [5, 1, 1, 1]},
        {"c": floats(1, 5, 1, 1), "s": np.array([1, 1, 3, 1], np.float32)},
    ),
    "a vector of no channels": found(
        [node("Min", ["x", "k"], ["m"]), node("Clip", ["m", "l", "h"])],
        {"x": [1, 0]},
        {"k": floats(1, 0), "l": np.float32(0), "h": np.float32(3)},
    ),
    "a constant written out beside a source in blocks": found(
        [
            node("ConvTranspose", ["v", "w"], ["c"], kernel_shape=[3, 3]),
            node("Min", ["c", "k"], ["m"]),
            node("QuantizeLinear", ["m", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("Min", ["d", "c"], ["n"]),
            node("Add", ["n", "k"], ["a"]),
            node("Add", ["x", "a"]),
        ],
        {"x": [1, 2, 1, 1], "v": [1, 3, 17, 1]},
        {"w": floats(3, 2, 3, 3), "k": floats(1, 2, 1, 3), "s": np.float32(32), "z": np.uint8(254)},
    ),
    "a sum behind a reduction of one element": found(
        [
            node("Clip", ["a", "l", "h"], ["m"]),
            node("ReduceMax", ["b", "axes"], ["r"]),
            node("Add", ["m", "r"]),
        ],
        {"a": [1, 1, 1], "b": [1, 1, 1]},
        {"l": np.float32(-2), "h": np.float32(2), "axes": np.array([0])},
    ),
    "channels between the rest": found(
        [
            node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
            node("Transpose", ["t"], ["u"], perm=[0, 1, 3, 2]),
            node("Add", ["t", "u"], ["a"]),
            node("Mul", ["a", "c"]),
        ],
        {"x": [2, 3, 2, 3]},
        {"c": floats(1, 2, 1, 1)},
    ),
    "a padded dimension joined with others": found(
        [node("ConvTranspose", ["x", "w"], ["c"], kernel_shape=[2]), node("Reshape", ["c", "s"])],
        {"x": [51, 1, 17]},
        {"w": floats(1, 1, 2), "s": np.array([9, 102])},
    ),
    "blocks of channels joined along the last dimension": found(
        [
            node("Conv", ["x", "w"], ["c"], strides=[1, 2]),
            node("Concat", ["c", "c", "c"], ["j"], axis=3),
            node("Max", ["j", "b"], ["m"]),
            node("Clip", ["m", "l"]),
        ],
        {"x": [1, 1, 1, 3], "b": [1, 17, 1, 3]},
        {"w": floats(17, 1, 1, 2), "l": np.float32(-0.5)},
    ),
    "a whole tensor behind a pooling of blocks": found(
        [
            node("ConvTranspose", ["x", "w"], ["c"], strides=[2]),
            node("AveragePool", ["c"], ["p"], kernel_shape=[2]),
            node("Sub", ["p", "b"]),
        ],
        {"x": [1, 1, 1], "b": [1, 2, 2]},
        {"w": floats(1, 2, 3)},
    ),
    "a number for each sample behind a resize of blocks": found(
        [
            node("Conv", ["x", "w"], ["c"], strides=[1, 2]),
            node("Resize", ["c", "", "s"], ["r"], mode="nearest", **NEAREST),
            node("Add", ["r", "b"]),
        ],
        {"x": [3, 1, 2, 3], "b": [3, 1, 1, 1]},
        {"w": floats(17, 1, 1, 2), "s": np.array([1, 1, 2, 2], np.float32)},
    ),
}
"""What the law has found, made smaller."""


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_found(case: Case) -> None:
    assert broken(case) == ""


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "block",
    [pytest.param(n, marks=[pytest.mark.slow] if n >= USUAL else []) for n in range(BLOCKS)],
)
def test_layouts(block: int) -> None:
    start = secrets.randbits(48) if FUZZ else block * CASES
    for seed in some(range(start, start + CASES // BLOCKS)):
        hold(seed)
