"""Tensors of more than five dimensions, empty ones, and kernels whose taps fill a vector: what the
library computes wrongly, or would end the process at, is not asked of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.primitives import Binary, Eltwise, Prelu, PrimitiveAttr, Scale, ZeroPoint, prim

ENGINES = ("numpy", "onednn")
SIX = "f32[1,3,2,2,2,2]"


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("src", ["s8", "u8"])
@pytest.mark.parametrize(
    ("spatial", "taps"), [("2,2,2", "2,2,2"), ("2,4", "2,4"), ("8", "8"), ("8,1", "8,1")]
)
def test_depthwise_kernels_of_eight_taps(src: str, spatial: str, taps: str) -> None:
    """Their weights are packed by a transposition of 8x8, which forgets what compensates for the shift of
    signed codes, or for a zero point.
    """
    ones = ",".join("1" for _ in taps.split(","))
    words = {
        "src": f"{src}[1,8,{spatial}]",
        "weights": f"s8[8,1,1,{taps}]",
        "dst": f"s32[1,8,{ones}]",
    }
    zero = {} if src == "s8" else {"src": ZeroPoint((3,))}
    made = [prim("convolution", PrimitiveAttr({}, zero), engine=e, **words) for e in ENGINES]
    what = made[0].description
    args = {
        "src": np.full(what.dims("src"), 5, what.dtype("src").numpy),
        "weights": np.full(what.dims("weights"), 2, np.int8),
    }
    for primitive in made:
        assert (primitive.execute(args) == 16 * (5 if src == "s8" else 2)).all()


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize(
    ("kind", "attr", "words"),
    [
        ("batch_normalization", PrimitiveAttr(), {"src": SIX, "dst": SIX}),
        ("lrn", PrimitiveAttr(), {"src": SIX, "dst": SIX, "local_size": 1, "alpha": 0.5}),
        (
            "eltwise",
            PrimitiveAttr(post_ops=(Binary("add", "more"),)),
            {"src": SIX, "dst": SIX, "algorithm": "linear", "alpha": 1.0, "more": SIX},
        ),
        (
            "matmul",
            PrimitiveAttr(post_ops=(Prelu("slopes", 4),)),
            {"src": SIX, "weights": SIX, "dst": SIX, "slopes": "f32[1,1,2,1,1,1]"},
        ),
        ("matmul", PrimitiveAttr(), {"src": "f32[2,0]", "weights": "f32[0,3]", "dst": "f32[2,3]"}),
        (
            "reorder",
            PrimitiveAttr({"src": Scale((), 8)}),
            {"src": "s8[1,1,3,0]", "dst": "u8[1,1,3,0]"},
        ),
        ("reorder", PrimitiveAttr(), {"src": "f32[8,1,0]", "dst": "u8[8,1,0]"}),
        ("concat", PrimitiveAttr(), {"src_0": "f32[8,1,0]", "dst": "u8[8,1,0]", "axis": 2}),
    ],
)
def test_known_defects_are_not_asked_for(
    kind: str, attr: PrimitiveAttr, words: dict[str, Any]
) -> None:
    with pytest.raises(Unimplemented, match="computes that wrongly"):
        prim(kind, attr, engine="onednn", **words)
    numpys = prim(kind, attr, **words)
    what = numpys.description
    types = {**what.tensors, **what.operands}
    args = {n: np.ones(t.static_shape, t.dtype.numpy) for n, t in types.items() if n != "dst"}
    if attr.scales:
        args["scales_src"] = np.zeros(0, np.float32)
    assert numpys.execute(args).shape == what.dims("dst")


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_not_resampled(engine: str) -> None:
    """The library would leave the destination what it was."""
    words = {"src": "f32[2,3,0]", "dst": "f32[2,3,2]", "algorithm": "nearest"}
    with pytest.raises(Unimplemented, match="there is nothing to resample"):
        prim("resampling", engine=engine, **words)
    words["dst"] = "f32[2,3,0]"
    nothing = np.zeros((2, 3, 0), np.float32)
    assert prim("resampling", engine=engine, **words).execute({"src": nothing}).size == 0


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "words",
    [
        {"src": "u8[0,4,3]", "weights": "s8[4,4,2]", "dst": "u8[0,4,4]"},
        {
            "src": "u8[1,33,1]",
            "weights": "s8[33,1,1,8]",
            "dst": "u8[1,33,0]",
            "strides": (2,),
            "padding_l": (1,),
            "padding_r": (7,),
        },
    ],
)
def test_codes_are_not_spread_into_nothing(engine: str, words: dict[str, Any]) -> None:
    """The library would end the process, here when it runs and there when it makes the primitive."""
    with pytest.raises(Unimplemented, match="divides by 0"):
        prim("deconvolution", engine=engine, **words)


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_of_no_channels(engine: str) -> None:
    """The share of each square is infinite: all but 0, which is no number then, become 0."""
    words = {"src": "f32[1,2,3]", "dst": "f32[1,2,3]", "local_size": 0, "alpha": 0.5}
    x = np.array([[[1, -2, 3], [4, 0, 6]]], np.float32)
    y = prim("lrn", engine=engine, **words).execute({"src": x})
    assert np.isnan(y[0, 1, 1])
    assert (y[x != 0] == 0).all()


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_halves_are_not_rounded_to_integers(engine: str, dtype: str) -> None:
    with pytest.raises(OneDnnError) as caught:
        prim("eltwise", engine=engine, src=f"{dtype}[4]", dst=f"{dtype}[4]", algorithm="round")
    assert caught.value.status == Status.invalid_arguments


@pytest.mark.usefixtures("of_the_rules")
def test_windows_of_zeros_are_positive_zeros() -> None:
    """Where no weight is positive, too: integers have one zero."""
    words = {
        "src": "s8[1,4,3]",
        "weights": "s8[4,1,1,2]",
        "dst": "f32[1,4,4]",
        "padding_r": (2,),
    }
    args = {
        "src": np.array([[[1, 2, 0]] * 4], np.int8),
        "weights": np.full((4, 1, 1, 2), -5, np.int8),
    }
    for engine in ENGINES:
        y = prim("convolution", engine=engine, **words).execute(args)
        assert y[0, 0].tolist() == [-15, -10, 0, 0]
        assert not np.signbit(y[y == 0]).any()


def test_a_refusal_of_another_scheme_is_a_sentence() -> None:
    words = {"src": "u8[1,4,3,3]", "weights": "s8[4,4,1,1]", "dst": "f32[1,4,3,3]"}
    attr = PrimitiveAttr({"src": Scale((0.5,))}, post_ops=(Eltwise("relu"),))
    with pytest.raises(Unimplemented, match="where it has a scale of src"):
        prim("convolution", attr, target="onednn-v2", **words)
