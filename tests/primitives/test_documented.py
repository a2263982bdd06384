"""What the specification says of single primitives, by numbers."""

from __future__ import annotations

import numpy as np
import pytest

from fqfuse.primitives import Binary, Eltwise, PrimitiveAttr, Scale, ZeroPoint, prim

ENGINES = ["numpy", "onednn"]


def requires(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "onednn":
        request.getfixturevalue("of_the_rules")


@pytest.mark.parametrize("engine", ENGINES)
def test_sum_has_a_scale_for_each_source(engine: str, request: pytest.FixtureRequest) -> None:
    requires(engine, request)
    words = {"src_0": "u8[3]", "src_1": "u8[3]", "src_2": "s8[3]", "dst": "s8[3]"}
    found = prim("sum", engine=engine, **words, scales=(0.5, 2.0, -1.0)).execute(
        {
            "src_0": np.array([1, 2, 255], np.uint8),
            "src_1": np.array([1, 2, 3], np.uint8),
            "src_2": np.array([-100, 1, 0], np.int8),
        }
    )
    assert found.tolist() == [102, 4, 127]


@pytest.mark.usefixtures("of_the_rules")
def test_a_sum_may_need_a_scratchpad() -> None:
    """Of codes it adds up in f32 there; of f32 it needs none."""
    words = {"scales": (1.0, 1.0), "engine": "onednn", "scratchpad": "user"}
    codes = prim("sum", src_0="u8[64]", src_1="u8[64]", dst="u8[64]", **words)
    assert codes.scratchpad_size >= 64 * 4
    assert (
        prim("sum", src_0="f32[64]", src_1="f32[64]", dst="f32[64]", **words).scratchpad_size == 0
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_inner_product_has_scales_of_its_outputs_and_post_ops_behind(
    engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    attr = PrimitiveAttr(
        {"src": Scale((0.5,)), "weights": Scale((0.25, 2.0), 1)},
        post_ops=(Binary("mul", "factor"), Eltwise("relu")),
    )
    words = {"src": "u8[1,2,2]", "weights": "s8[2,2,2]", "dst": "f32[1,2]", "factor": "f32[1,2]"}
    found = prim("inner_product", attr, engine=engine, **words).execute(
        {
            "src": np.array([[[1, 2], [3, 4]]], np.uint8),
            "weights": np.array([[[1, 1], [1, 1]], [[-1, 0], [0, 2]]], np.int8),
            "factor": np.array([[8, 3]], np.float32),
        }
    )
    assert found.tolist() == [[10, 21]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["convolution", "matmul"])
def test_sources_have_zero_points_along_their_channels(
    kind: str, engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    attr = PrimitiveAttr(zero_points={"src": ZeroPoint((), 2)})
    rng = np.random.default_rng(0)
    zero = np.array([1, 5, 9], np.int32)
    src = rng.integers(0, 20, (2, 3)).astype(np.uint8)
    weights = rng.integers(-9, 9, (3, 4)).astype(np.int8)
    expected = (src.astype(np.int64) - zero) @ weights.astype(np.int64)
    args = {"src": src, "weights": weights, "zero_points_src": zero}
    words = {"src": "u8[2,3]", "weights": "s8[3,4]", "dst": "s32[2,4]"}
    if kind == "convolution":
        words = {"src": "u8[2,3,1]", "weights": "s8[4,3,1]", "dst": "s32[2,4,1]"}
        args |= {"src": src[..., None], "weights": np.ascontiguousarray(weights.T)[..., None]}
    found = prim(kind, attr, engine=engine, **words).execute(args)
    assert np.array_equal(found.reshape(2, 4), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_tanh_with_scales_on_both_sides(engine: str, request: pytest.FixtureRequest) -> None:
    """dst_q = 1/s_dst * tanh(s_src * s_wei * acc)."""
    requires(engine, request)
    attr = PrimitiveAttr(
        {"src": Scale((0.5,)), "weights": Scale((0.125,)), "dst": Scale((1 / 64,))},
        post_ops=(Eltwise("tanh"),),
    )
    words = {"src": "u8[1,2]", "weights": "s8[2,3]", "dst": "s8[1,3]"}
    src, weights = np.array([[3, 4]], np.uint8), np.array([[1, 9, -2], [0, 9, 1]], np.int8)
    found = prim("matmul", attr, engine=engine, **words).execute({"src": src, "weights": weights})
    real = np.tanh((src.astype(int) @ weights) * 0.0625)
    assert np.array_equal(found, np.rint(real * 64).astype(np.int8))


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_in_groups_by_a_reorder(engine: str, request: pytest.FixtureRequest) -> None:
    """wei_s8(g, oc, ...) <- wei_f32(g, oc, ...) / scale(g, oc)."""
    requires(engine, request)
    weights = np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 2, 1, 2)
    scales = np.array([0.25, 0.5, 1, 2, 4, 0.125], np.float32)
    attr = PrimitiveAttr({"dst": Scale((), 0b11)})
    words = {"src": "f32[2,3,2,1,2]", "dst": "s8[2,3,2,1,2]"}
    found = prim("reorder", attr, engine=engine, **words).execute(
        {"src": weights, "scales_dst": scales}
    )
    expected = np.rint(weights / scales.reshape(2, 3, 1, 1, 1))
    assert np.array_equal(found, np.clip(expected, -128, 127).astype(np.int8))
