"""Tensors of more than five dimensions, empty ones, and kernels whose taps fill a vector: what the
library computes wrongly, or would end the process at, is not asked of it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.primitives import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    ZeroPoint,
    prim,
)

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
        # even, since without VNNI the library halves weights behind s8
        "weights": np.full((4, 1, 1, 2), -6, np.int8),
    }
    for engine in ENGINES:
        y = prim("convolution", engine=engine, **words).execute(args)
        assert y[0, 0].tolist() == [-18, -12, 0, 0]
        assert not np.signbit(y[y == 0]).any()


def test_a_refusal_of_another_scheme_is_a_sentence() -> None:
    words = {"src": "u8[1,4,3,3]", "weights": "s8[4,4,1,1]", "dst": "f32[1,4,3,3]"}
    attr = PrimitiveAttr({"src": Scale((0.5,))}, post_ops=(Eltwise("relu"),))
    with pytest.raises(Unimplemented, match="where it has a scale of src"):
        prim("convolution", attr, target="onednn-v2", **words)


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("begin", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["convolution", "pooling", "deconvolution"])
def test_a_negative_padding_behind_cuts_off(kind: str, begin: int) -> None:
    """Where the library takes it, which depends on the stride; a depthwise post-op may have one, too."""
    rng = np.random.default_rng(0)
    made = 0
    for size, stride, end in product((1, 2, 3), (1, 2, 3), (-3, -2, -1)):
        args = {
            "src": rng.integers(0, 200, (1, 2, 7)).astype(np.uint8),
            "weights": rng.integers(-9, 9, (3, 2, size)).astype(np.int8),
        }
        words: dict[str, Any] = {"strides": (stride,), "padding_l": (begin,), "padding_r": (end,)}
        count = (7 - size + begin + end) // stride + 1
        if kind == "deconvolution":
            count = 6 * stride + size - begin - end
        words |= {"src": "u8[1,2,7]", "weights": f"s8[3,2,{size}]", "dst": f"f32[1,3,{count}]"}
        if kind == "pooling":
            del args["weights"], words["weights"]
            words |= {
                "dst": f"u8[1,2,{count}]",
                "kernel": (size,),
                "algorithm": "avg_exclude_padding",
            }
        found: list[Any] = []
        for engine in ("numpy", "onednn"):
            try:
                found.append(prim(kind, engine=engine, **words).execute(args).tolist())
            except OneDnnError as error:
                found.append(error.status)
        assert found[0] == found[1], words
        made += isinstance(found[0], list)
    assert made > 3 or begin < 0


@pytest.mark.usefixtures("of_the_rules")
def test_a_depthwise_post_op_that_leaves_the_last_row_out() -> None:
    attr = PrimitiveAttr(post_ops=(DepthwiseConv("taps", "", 1, 2, 0),))
    words = {"src": "u8[1,3,4,6]", "weights": "s8[5,3,1,1]", "taps": "s8[5,1,1,1]"}
    rng = np.random.default_rng(0)
    args = {
        "src": rng.integers(0, 5, (1, 3, 4, 6)).astype(np.uint8),
        "weights": rng.integers(0, 5, (5, 3, 1, 1)).astype(np.int8),
        "taps": np.ones((5, 1, 1, 1), np.int8),
    }
    first, second = (
        prim("convolution", attr, engine=engine, **words, dst="u8[1,5,2,3]").execute(args)
        for engine in ("numpy", "onednn")
    )
    sums = np.einsum("ncij,oc->noij", args["src"].astype(int), args["weights"][..., 0, 0])
    assert np.array_equal(first, sums[:, :, ::2, ::2])
    assert np.array_equal(first, second)
