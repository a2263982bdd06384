"""Every anchor, with each of six things behind it, stored in f32, u8 and s8: the steps of the plan,
and its numbers on both runtimes.

The table says which steps, and why, where there are more than the anchor's own. Numbers are held to
the interval that the graph gives when every f32 rounding is widened outward; the oneDNN runtime,
which computes transcendental functions its own way, may be 1 code further.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache

import numpy as np
import pytest
from laws.anchors import ANCHORS, BEHIND, STORED, anchor_net, image
from laws.build import Net
from laws.contracts import GRANTED
from laws.intervals import Box, run_boxes
from laws.registry import feeds_for
from laws.runtimes import EACH_RUNTIME

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType
from fqfuse.passes import optimize
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

# -- the steps, and why there are more than one ----------------------------------------------------

NO_PRELU = "with the post-op prelu oneDNN has compiled kernels of convolution, deconvolution and matmul only"
OWN_TYPE = "the target pools codes into codes of the same type only, and into f32"
F32_ONLY = "no compiled kernel of the primitive reads codes, or stores them"
DECODED = "the target's reduction reads f32: the codes are decoded in front"
F32_SOURCE = "the scale of the source multiplies the result, and there is no zero point: the codes are decoded in front"
NO_POST_OPS = "the primitive takes no post-ops"
NO_ZERO_POINTS = (
    "a product or maximum wants codes less their zero points, and binary has scales only"
)
MOVED = "the codes are moved or compared as they are; what decodes them, and all that follows, is a step of its own"
CODES_ALONE = "an average of codes is codes of the same type on oneDNN 2.6, and this one is f32"
VIEW = "the pool keeps its axes of size 1; without them its result is another view, and the other operand has that one's shape"
REQUANTIZED = "no primitive made these codes that could have made them otherwise"
TRANSPOSED = "the operand is transposed at run time, by NumPy"

Row = tuple[str, str, str]
"""What is behind the anchor and how it is stored (patterns, `behind/stored`), the steps, and why
there are more than one.
"""


def _one(primitive: str) -> tuple[Row, ...]:
    return (("*", primitive, ""),)


def _before_prelu(steps: str, *rest: Row) -> tuple[Row, ...]:
    """Where prelu is no post-op: the primitive, in f32, and prelu; with a quantizer behind it
    max(x, a*x), which stores the codes.
    """
    return (
        ("prelu/f32", f"{steps} prelu", NO_PRELU),
        ("prelu/*", f"{steps} binary", NO_PRELU),
        *rest,
    )


def _prelu_of_codes(steps: str, *rest: Row) -> tuple[Row, ...]:
    """Where the primitive gives codes: max(x, a*x) of these, in the step that decodes them."""
    return ("prelu/*", f"{steps} binary", NO_PRELU), *rest


def _without_post_ops(steps: str, why: str) -> tuple[Row, ...]:
    return _before_prelu(
        steps,
        ("nothing/f32", steps, why),
        ("nothing/*", f"{steps} reorder", why),
        ("relu/f32", f"{steps} eltwise", why),
        ("clip/f32", f"{steps} eltwise", why),
        ("*", f"{steps} binary", why),
    )


def _moved_codes(steps: str) -> tuple[Row, ...]:
    return _prelu_of_codes(
        steps,
        ("nothing/f32", f"{steps} reorder", MOVED),
        ("nothing/*", f"reorder {steps}", REQUANTIZED),
        ("*", f"{steps} binary", MOVED),
    )


_AVERAGE = (
    ("prelu/f32", "pooling prelu", NO_PRELU),
    ("prelu/*", "pooling binary", NO_PRELU),
    ("*/s8", "pooling reorder", OWN_TYPE),
    ("*", "pooling", ""),
)
_REDUCTION = _before_prelu("reorder reduction", ("*", "reorder reduction", DECODED))

_GROUP = "onnx.Reshape reorder layer_normalization onnx.Reshape binary"

STEPS: dict[str, tuple[Row, ...]] = {
    **dict.fromkeys(
        (name for name in ANCHORS if name.startswith("convolution")), _one("convolution")
    ),
    **dict.fromkeys(
        (name for name in ANCHORS if name.startswith("deconvolution")), _one("deconvolution")
    ),
    **dict.fromkeys(
        ("matmul 2d", "matmul batched", "matmul asymmetric", "gemm", "matmul transposed"),
        _one("matmul"),
    ),
    # Its second operand is quantized here, behind a tanh, and transposed in 8 bits.
    "matmul of activations": (("*", "binary onnx.Transpose matmul", TRANSPOSED),),
    "average pooling": _AVERAGE,
    "global average pooling": _AVERAGE,
    "max pooling": _moved_codes("pooling"),
    "global max pooling": _moved_codes("pooling"),
    # Over all spatial axes they are global pooling.
    "reduction mean": _AVERAGE,
    "reduction mean without axes": (
        ("residual/*", "pooling onnx.Squeeze binary", VIEW),
        ("prelu/f32", "pooling prelu onnx.Squeeze", NO_PRELU),
        ("prelu/u8", "pooling binary onnx.Squeeze", NO_PRELU),
        ("prelu/s8", "pooling onnx.Squeeze binary", NO_PRELU),
        ("nothing/s8", "pooling reorder onnx.Squeeze", OWN_TYPE),
        ("*/s8", "pooling onnx.Squeeze binary", OWN_TYPE),
        ("*", "pooling onnx.Squeeze", VIEW),
    ),
    "reduction mean of one axis": _REDUCTION,
    "reduction sum": _REDUCTION,
    "reduction max": _moved_codes("pooling"),
    "reduction max of one axis": _moved_codes("onnx.ReduceMax"),
    **dict.fromkeys(
        ("binary add", "binary sub", "binary max", "sum of two", "sum of three"),
        _before_prelu("binary", ("*", "binary", "")),
    ),
    "binary mul": _before_prelu("reorder binary", ("*", "reorder binary", NO_ZERO_POINTS)),
    "concat": _prelu_of_codes(
        "concat", ("nothing/*", "concat reorder", NO_POST_OPS), ("*", "concat binary", NO_POST_OPS)
    ),
    "concat of two scales": _before_prelu("concat binary", ("*", "concat binary", NO_POST_OPS)),
    "softmax": _before_prelu("reorder softmax", ("*", "reorder softmax", F32_SOURCE)),
    "shuffle": _moved_codes("shuffle"),
    "lrn": _without_post_ops("reorder lrn", F32_ONLY),
    "layer normalization": (
        ("nothing/*", "reorder layer_normalization", F32_SOURCE),
        ("mul add/*", "reorder layer_normalization", F32_SOURCE),
        *_without_post_ops("reorder layer_normalization", NO_POST_OPS),
    ),
    "group normalization": _before_prelu(_GROUP, ("*", _GROUP, F32_SOURCE)),
    "batch normalization": _before_prelu("binary", ("*", "binary", "")),
    **dict.fromkeys(
        ("resize nearest", "resize linear"), _before_prelu("resampling", ("*", "resampling", ""))
    ),
    "prelu": _before_prelu("binary", ("*", "binary", "")),
    "reorder": (
        ("nothing/*", "reorder", ""),
        ("*", "binary", ""),
    ),
}

_IN_F32 = ("residual/*", "prelu/u8")
"""What is behind an average without axes that is f32 although codes of its type are stored."""


def _decoded_first(*rows: Row) -> tuple[Row, ...]:
    return tuple((pattern, f"reorder {steps}", CODES_ALONE) for pattern, steps, _ in rows)


V2_STEPS = {
    **STEPS,
    **dict.fromkeys(
        ("average pooling", "global average pooling", "reduction mean"),
        (*_decoded_first(*_AVERAGE[:2]), ("*/u8", "pooling", ""), *_decoded_first(*_AVERAGE)),
    ),
    "reduction mean without axes": (
        *_decoded_first(
            *(row for row in STEPS["reduction mean without axes"] if row[0] in _IN_F32)
        ),
        ("*/u8", "pooling onnx.Squeeze", VIEW),
        *_decoded_first(*STEPS["reduction mean without axes"]),
    ),
    # codes without a zero point: its output scale
    "softmax": (
        ("nothing/s8", "reorder softmax", F32_SOURCE),
        *_without_post_ops("reorder softmax", F32_ONLY),
    ),
    "layer normalization": (
        ("mul add/f32", "reorder layer_normalization", F32_SOURCE),
        ("mul add/*", "reorder layer_normalization reorder", F32_ONLY),
        *_without_post_ops("reorder layer_normalization", F32_ONLY),
    ),
}
"""oneDNN 2.6 has no post-ops on the last two, and no zero point; softmax has an output scale. An average of codes
it stores as such codes.
"""


_MEAN = (
    ("prelu/f32", "pooling prelu", NO_PRELU),
    ("prelu/*", "pooling binary", NO_PRELU),
    ("*", "pooling", ""),
)
UNIFIED_STEPS = {
    **STEPS,
    **dict.fromkeys(("average pooling", "global average pooling", "reduction mean"), _MEAN),
    "reduction mean without axes": (
        ("residual/*", "pooling onnx.Squeeze binary", VIEW),
        ("prelu/f32", "pooling prelu onnx.Squeeze", NO_PRELU),
        ("prelu/u8", "pooling binary onnx.Squeeze", NO_PRELU),
        ("prelu/s8", "pooling onnx.Squeeze binary", NO_PRELU),
        ("nothing/s8", "pooling onnx.Squeeze", VIEW),
        ("*/s8", "pooling onnx.Squeeze binary", VIEW),
        ("*", "pooling onnx.Squeeze", VIEW),
    ),
    "lrn": _before_prelu("reorder lrn", ("*", "reorder lrn", DECODED)),
}
"""There every destination has a scale, in every type, and behind every primitive stand post-ops."""


def row(table: Mapping[str, tuple[Row, ...]], anchor: str, behind: str, stored: str) -> Row:
    return next(found for found in table[anchor] if fnmatchcase(f"{behind}/{stored}", found[0]))


@cache
def case(
    anchor: str, behind: str, stored: str, target: str = "onednn-v3"
) -> tuple[Graph, dict[str, np.ndarray], Box, Plan]:
    n, y = anchor_net(anchor, behind, stored)
    graph = n.done(y)
    feeds = feeds_for(graph)
    return (
        graph,
        feeds,
        run_boxes(graph, feeds, GRANTED)[y],
        plan_from_graph(optimize(graph.copy()), target),
    )


every_case = pytest.mark.parametrize(
    ("behind", "stored"), [(behind, stored) for behind in BEHIND for stored in STORED]
)


@every_case
@pytest.mark.parametrize("anchor", ANCHORS)
def test_steps(anchor: str, behind: str, stored: str) -> None:
    _, steps, why = row(STEPS, anchor, behind, stored)
    assert [step.primitive for step in case(anchor, behind, stored)[3].steps] == steps.split()
    assert bool(why) == (" " in steps), (
        "the reason for each step more, and none where there is none"
    )


@every_case
@pytest.mark.parametrize("anchor", ANCHORS)
def test_steps_of_v2(anchor: str, behind: str, stored: str) -> None:
    _, steps, _ = row(V2_STEPS, anchor, behind, stored)
    assert [
        step.primitive for step in case(anchor, behind, stored, "onednn-v2")[3].steps
    ] == steps.split()


@every_case
@pytest.mark.parametrize("anchor", ANCHORS)
def test_steps_of_unified(anchor: str, behind: str, stored: str) -> None:
    """The steps of onednn-v3, and one less where a quantizer stood alone, for every destination has a
    scale; not concat's a zero point. A reorder into f32 decodes.
    """
    _, steps, _ = row(UNIFIED_STEPS, anchor, behind, stored)
    found = [step.primitive for step in case(anchor, behind, stored, "unified")[3].steps]
    alone = stored != "f32" and anchor != "concat"
    assert found == (steps.removesuffix(" reorder") if alone else steps).split()


@EACH_RUNTIME
@every_case
@pytest.mark.parametrize("anchor", ANCHORS)
def test_numbers(anchor: str, behind: str, stored: str, runtime: str) -> None:
    _, feeds, box, plan = case(anchor, behind, stored)
    assert verify_plan(plan) == []
    _held(plan, runtime, feeds, box)


@EACH_RUNTIME
@pytest.mark.parametrize("target", [name for name in TARGETS if name != "onednn-v3"])
@pytest.mark.parametrize("stored", ["u8", "s8"])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_numbers_of_the_other_targets(anchor: str, stored: str, target: str, runtime: str) -> None:
    for behind in BEHIND:
        _, feeds, box, plan = case(anchor, behind, stored, target)
        assert verify_plan(plan) == []
        _held(plan, runtime, feeds, box)


def _held(plan: Plan, runtime: str, feeds: dict[str, np.ndarray], box: Box) -> None:
    (found,) = InferenceSession(plan, runtime, 1).run(None, feeds)
    codes = found.dtype.kind in "iu"
    slack = (
        float(codes and runtime == "onednn")
        if codes
        else 1e-6 + 1e-6 * np.abs(found).max(initial=0)
    )
    assert box.outside(found) <= slack, print_plan(plan, data="digest")


@pytest.mark.parametrize(("mode", "between"), [("nearest", DType.U8), ("linear", DType.F32)])
@EACH_RUNTIME
def test_resize_between_two_convolutions(mode: str, between: DType, runtime: str) -> None:
    """Repeated codes are codes, which the next convolution reads; means of codes are not."""
    n = Net(seed=7)
    y = n.qdq(n.conv(image(n), 8, scale=2**-8), 2**-5, 128)
    y = n.op(
        "Resize",
        y,
        "",
        n.const([1, 1, 2, 2]),
        mode=mode,
        coordinate_transformation_mode="half_pixel",
    )
    y = n.conv(y, 4, scale=2**-8)
    graph = n.done(y)
    feeds = feeds_for(graph)
    plan = plan_from_graph(optimize(graph.copy()))
    assert [step.primitive for step in plan.steps] == ["convolution", "resampling", "convolution"]
    assert plan.type(plan.steps[1].output).dtype is between
    _held(plan, runtime, feeds, run_boxes(graph, feeds, GRANTED)[y])
