"""What is made executes, on either engine, whatever is in its tensors; and its sums are the exact integers,
modulo 2^32, however far zero points are from the codes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import ENOUGH, examples
from laws.executions import refused
from laws.primitives import MAKERS
from support.codes import s8_codes

from fqfuse.ir.types import DType
from fqfuse.primitives import PrimitiveAttr, Scale, ZeroPoint, prim


@pytest.mark.hypothesis
@pytest.mark.usefixtures("of_the_rules")
def test_what_is_made_executes() -> None:
    seen: Counter[str] = Counter()

    @examples(300, fuzz=5000)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        found = refused(seed, seen)
        assert not found, found

    run()
    if ENOUGH:
        assert min(seen["numpy"], seen["onednn"], seen["empty"]) > 10


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", MAKERS)
def test_each_kind(kind: str) -> None:
    seen: Counter[str] = Counter()
    assert [text for seed in range(100) if (text := refused(seed, seen, kind))] == []
    assert min(seen["numpy"], seen["onednn"]) > 1


GEOMETRIES = {
    "matmul": ("[3,700]", "[700,5]", "[3,5]", {}),
    "convolution": ("[1,300,5,4]", "[6,300,2,3]", "[1,6,5,4]", {"padding_l": (0, 2)}),
    "deconvolution": ("[2,102,4]", "[2,3,51,2]", "[2,6,6]", {"padding_r": (2,), "strides": (2,)}),
}
"""Source, weights, destination, and parameters."""


def _case(kind: str, dtype: str, points: dict[str, ZeroPoint]) -> tuple[np.ndarray, np.ndarray]:
    """What NumPy and the library compute of full codes."""
    src, weights, dst, params = GEOMETRIES[kind]
    if kind == "convolution":
        params = {**params, "padding_r": (1, 0)}
    words = {"src": dtype + src, "weights": f"s8{weights}", "dst": f"f32{dst}", **params}
    attr, rng = PrimitiveAttr(zero_points=points), np.random.default_rng(5)
    made = [prim(kind, attr, engine=engine, **words) for engine in ("numpy", "onednn")]
    args = {
        role: s8_codes(rng, type_.static_shape, 127)
        if type_.dtype is DType.S8
        else rng.integers(*type_.dtype.range, type_.static_shape).astype(type_.dtype.numpy)
        for role, type_ in made[0].description.tensors.items()
        if role != "dst"
    }
    first, second = (each.execute(args) for each in made)
    return first, second


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_sums_with_zero_points_by_channel_are_exact(kind: str, dtype: str) -> None:
    """Their sums pass 2^24, where f32 has no place for each integer."""
    channels = int(GEOMETRIES[kind][0].split(",")[1].rstrip("]"))
    points = (120, -100, *range(0, 4000 * (channels - 2), 4000))
    ours, theirs = _case(kind, dtype, {"src": ZeroPoint(points, 2)})
    most = np.abs(theirs).max()
    assert most > 2**24
    if kind == "deconvolution":  # the library's by gemm adds up in f32
        assert np.allclose(ours, theirs, rtol=0, atol=most * 2.0**-23)
    else:
        assert np.array_equal(ours, theirs)


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize("far", [2**14, 2**15, -(2**20) - 1, 2**31 - 1])
def test_sums_with_far_zero_points_wrap_around(kind: str, far: int) -> None:
    points = {"src": ZeroPoint((far,))}
    if kind == "matmul":
        points["weights"] = ZeroPoint((-3,))
    ours, theirs = _case(kind, "s8", points)
    assert np.array_equal(ours, theirs)
    if kind == "matmul":  # such products were cut into pieces without end
        ours, theirs = _case(kind, "u8", {"weights": ZeroPoint((far,))})
        assert np.array_equal(ours, theirs)


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("kind", GEOMETRIES)
@pytest.mark.parametrize("points", [ZeroPoint((3, -7), 2), ZeroPoint((2**15,))])
def test_a_bias_is_added_once_behind_such_sums(kind: str, points: ZeroPoint) -> None:
    """It is no part of what scales apply to."""
    tail = "" if kind == "matmul" else ",1"
    bias = f"f32[{'1,3' if kind == 'matmul' else '3'}]"
    weights = "s8[2,3]" if kind == "matmul" else "s8[3,2,1]"
    words = {"src": f"u8[1,2{tail}]", "weights": weights, "bias": bias, "dst": f"f32[1,3{tail}]"}
    scale = Scale((2.0, 1.0, 0.5), 2 if kind == "matmul" else 1)
    attr = PrimitiveAttr({"weights": scale}, {"src": points})
    made = [prim(kind, attr, engine=engine, **words) for engine in ("numpy", "onednn")]
    types = made[0].description.tensors
    args = {
        role: np.full(types[role].static_shape, value, types[role].dtype.numpy)
        for role, value in (("src", 9), ("weights", 1), ("bias", 100))
    }
    sums = np.array([2.0, 1.0, 0.5]) * (18 - sum(points.values) * (2 // len(points.values)))
    for each in made:
        assert np.array_equal(each.execute(args).reshape(-1), sums + 100)
