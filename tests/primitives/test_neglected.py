"""What oneDNN 3.2 takes and then neglects: that it makes it, that it computes what is left, and that
neither engine makes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.primitive import Primitive
from fqfuse.primitives import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
    on_library,
    prim,
)
from fqfuse.primitives.description import Description, described, operands_of, with_values
from fqfuse.primitives.neglected import neglected

pytestmark = pytest.mark.usefixtures("of_the_rules")

SOUND: Mapping[str, Mapping[str, object]] = {
    "convolution": {"src": "u8[1,4,3,3]", "weights": "s8[4,4,1,1]", "dst": "f32[1,4,3,3]"},
    "inner_product": {"src": "u8[2,4]", "weights": "s8[3,4]", "dst": "f32[2,3]"},
    "matmul": {"src": "u8[2,4]", "weights": "s8[4,3]", "dst": "f32[2,3]"},
    "eltwise": {"src": "f32[2,3]", "dst": "f32[2,3]", "algorithm": "relu"},
    "binary": {"src_0": "f32[2,3]", "src_1": "f32[2,3]", "dst": "f32[2,3]", "algorithm": "add"},
    "reorder": {"src": "s8[2,3]", "dst": "s8[2,3]"},
    "concat": {"src_0": "s8[2,3]", "src_1": "s8[2,3]", "dst": "s8[2,6]", "axis": 1},
    "pooling": {"src": "f32[1,2,4]", "dst": "f32[1,2,3]", "kernel": (2,), "algorithm": "max"},
    "reduction": {"src": "f32[2,3]", "dst": "f32[2,1]", "algorithm": "sum"},
    "resampling": {"src": "f32[1,2,4]", "dst": "f32[1,2,8]", "algorithm": "nearest"},
    "softmax": {"src": "f32[2,3]", "dst": "f32[2,3]", "axis": 1},
    "batch_normalization": {
        "src": "f32[2,3]",
        "dst": "f32[2,3]",
        "mean": "f32[3]",
        "variance": "f32[3]",
    },
    "deconvolution": {"src": "f32[1,2,1]", "weights": "f32[2,2,3]", "dst": "f32[1,2,1]"},
}
"""A primitive of each kind that the library makes."""


@dataclass(frozen=True)
class Case:
    """Attributes of which something is neglected.

    Attributes:
        kind: of the primitive.
        attr: its attributes.
        told: what `neglected` says.
        words: what is asked for beside those of `SOUND`, or instead.
        as_if: the attributes that the library computes with; None: it cannot be run, because it
            has no argument for what it would read.
    """

    kind: str
    attr: PrimitiveAttr
    told: str
    words: Mapping[str, object] = field(default_factory=dict)
    as_if: PrimitiveAttr | None = None


DEPTHWISE = DepthwiseConv("taps", "", 3, 1, 1, src_dtype=DType.U8, dst_dtype=DType.F32)
TAPS = {"taps": "s8[4,1,3,3]"}
RELU = PrimitiveAttr(post_ops=(Eltwise("relu"),))
PLAIN = PrimitiveAttr()


def _post_ops(*ops: object) -> PrimitiveAttr:
    return PrimitiveAttr(post_ops=ops)  # type: ignore[arg-type]


def _cases() -> dict[str, Case]:
    found = {
        f"a sum of {kind}": Case(kind, _post_ops(Sum("old")), f"a sum of {kind}", as_if=PLAIN)
        for kind in ("eltwise", "pooling")
    }
    for kind in ("eltwise", "binary", "pooling", "reduction", "resampling", "softmax"):
        rank = len(described(kind, SOUND[kind], PLAIN, "onednn-v3").dims("dst"))
        found[f"slopes of {kind}"] = Case(
            kind,
            _post_ops(Prelu("slopes", 0)),
            f"the slopes of a prelu post-op of {kind} cannot",
            {"slopes": f"f32[{','.join('1' * rank)}]"},
        )
    for kind in (
        *("inner_product", "matmul", "eltwise", "binary"),
        *("pooling", "reduction", "resampling", "softmax"),
    ):
        channels = described(kind, SOUND[kind], PLAIN, "onednn-v3").dims("dst")[1]
        words = {"taps": f"s8[{channels},1,3,3]"}
        found[f"a depthwise post-op of {kind}"] = Case(
            kind, _post_ops(DEPTHWISE), f"a depthwise post-op of {kind}", words, PLAIN
        )
    return found | _of_convolutions() | _of_scales() | _of_reorders() | _windows()


def _of_convolutions() -> dict[str, Case]:
    slopes = {"slopes": "f32[1,1,1,1]"}
    return {
        "slopes beside a depthwise post-op": Case(
            "convolution",
            _post_ops(DEPTHWISE, Prelu("slopes", 0)),
            "the slopes of a prelu post-op of convolution beside a depthwise one",
            {**TAPS, **slopes},
        ),
        "zero points beside a depthwise post-op": Case(
            "convolution",
            PrimitiveAttr(zero_points={"src": ZeroPoint((3,))}, post_ops=(DEPTHWISE,)),
            "zero points beside a depthwise post-op",
            TAPS,
        ),
        "an operand behind a depthwise post-op": Case(
            "convolution",
            _post_ops(DEPTHWISE, Binary("add", "operand")),
            "the operand operand [1, 4, 2, 3] does not broadcast",
            {**TAPS, "operand": "f32[1,4,2,3]"},
        ),
        "the type of a later sum": Case(
            "resampling",
            _post_ops(Sum("old"), Sum("old", dtype=DType.S32)),
            "the type that a later sum reads",
            as_if=_post_ops(Sum("old"), Sum("old")),
        ),
    }


def _of_scales() -> dict[str, Case]:
    two = {"src": Scale((2.0,)), "dst": Scale((0.5,))}
    points = {"src": ZeroPoint((3,))}
    return {
        "scales of what concat does not have": Case(
            "concat", PrimitiveAttr({"weights": Scale((2.0,))}), "scales of weights", as_if=PLAIN
        ),
        "the destination's scale of concat": Case(
            "concat", PrimitiveAttr({"dst": Scale((2.0,))}), "scales of dst", as_if=PLAIN
        ),
        "scales beside a relu": Case(
            "batch_normalization", replace(RELU, scales=two), "scales beside a relu", as_if=RELU
        ),
        "zero points beside a relu": Case(
            "batch_normalization",
            replace(RELU, zero_points=points),
            "zero points beside a relu",
            as_if=RELU,
        ),
    }


def _of_reorders() -> dict[str, Case]:
    masked = {"src": Scale((1.0, 2.0), 1), "dst": Scale((1.0, 2.0, 4.0), 2)}
    each = {"src": ZeroPoint((1, 5), 1)}
    return {
        "two masks of a reorder": Case(
            "reorder", PrimitiveAttr(masked), "scales of src and of dst"
        ),
        "several zero points of a reorder": Case(
            "reorder",
            PrimitiveAttr(zero_points=each),
            "other than one zero point",
        ),
        "the destination's scale of a reorder with a sum": Case(
            "reorder",
            PrimitiveAttr({"dst": Scale((0.5,))}, post_ops=(Sum("old"),)),
            "the scale of dst does not count",
            {"src": "f32[2,3]", "dst": "f32[2,3]"},
            as_if=PrimitiveAttr({"src": Scale((2.0,))}, post_ops=(Sum("old"),)),
        ),
        "the zero point of a reorder's sum": Case(
            "reorder",
            _post_ops(Sum("old", zero_point=3)),
            "the zero point of a sum",
            {"src": "f32[2,3]", "dst": "f32[2,3]"},
            as_if=_post_ops(Sum("old")),
        ),
    }


def _windows() -> dict[str, Case]:
    """Windows of 2 over 1 element, which C's division takes for one position."""
    long = {
        "weights": "s8[4,4,2,1]",
        "src": "u8[1,4,1,3]",
        "dst": "f32[1,4,1,3]",
        "strides": (2, 1),
    }
    pooled = {"src": "f32[1,2,1]", "dst": "f32[1,2,1]", "strides": (2,)}
    turned = {"dst": "f32[1,2,2]", "strides": (2,)}
    return {
        f"a window of {kind} that hangs out": Case(kind, PLAIN, "a window of", words)
        for kind, words in (("convolution", long), ("pooling", pooled), ("deconvolution", turned))
    }


CASES = _cases()


def _description(case: Case, attr: PrimitiveAttr) -> Description:
    words = {**SOUND[case.kind], **case.words}
    for name in {name for op in case.attr.post_ops for name in operands_of(op)}:
        if name not in {name for op in attr.post_ops for name in operands_of(op)}:
            words.pop(name, None)
    return described(case.kind, words, attr, "onednn-v3")


@pytest.mark.parametrize("name", CASES)
def test_the_library_makes_it_and_neither_engine_does(name: str, engine: Engine) -> None:
    case = CASES[name]
    what = _description(case, case.attr)
    assert on_library.descriptor(engine, what).impl_info
    assert (neglected(what) or "").startswith(case.told)
    # NumPy may refuse it as the target's table does not have it
    for runtime, told in (("numpy", None), ("onednn", "although|computes that wrongly")):
        with pytest.raises(Unimplemented, match=told):
            prim(case.kind, case.attr, engine=runtime, **{**SOUND[case.kind], **case.words})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.as_if is not None])
def test_the_library_computes_what_is_left(name: str, engine: Engine) -> None:
    case = CASES[name]
    assert case.as_if is not None
    what, as_if = (_description(case, attr) for attr in (case.attr, case.as_if))
    args = _args(what)
    fewer = {
        name: args[name].view(type_.dtype.numpy)
        for name, type_ in {**as_if.tensors, **as_if.operands}.items()
    }
    found, expected = _by_library(engine, what, args), _by_library(engine, as_if, fewer)
    # a softmax without post-ops is other code: a unit in the last place
    assert np.allclose(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["two masks of a reorder", "several zero points of a reorder"])
def test_the_library_cannot_run_it(name: str, engine: Engine) -> None:
    what = _description(CASES[name], CASES[name].attr)
    with pytest.raises(OneDnnError, match="executing") as caught:
        _by_library(engine, what, _args(what))
    assert caught.value.status == Status.invalid_arguments


def _args(what: Description) -> dict[str, np.ndarray]:
    """1, 2 ... 7, 1, 2 ... in each argument."""
    return {
        name: (np.arange(math.prod(type_.static_shape)) % 7 + 1)
        .reshape(type_.static_shape)
        .astype(type_.dtype.numpy)
        for name, type_ in {**what.tensors, **what.operands}.items()
    }


def _by_library(engine: Engine, what: Description, args: Mapping[str, np.ndarray]) -> np.ndarray:
    """By the first implementation, whatever is known of it."""
    primitive = Primitive(on_library.descriptor(engine, what))
    found = on_library.execute(Stream(engine), what, primitive, with_values(what, args), args)
    return found["dst"]


def test_each_kind_of_reason_has_its_case() -> None:
    found = {case.told for case in CASES.values()}
    assert len(found) == len(CASES) - 2  # three windows have one
