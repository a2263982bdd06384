"""Making a primitive: what is refused, with which status, and what is copied."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError, Status, Unimplemented
from fqfuse.onednn.library import Engine
from fqfuse.primitives import (
    Binary,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
    on_library,
    prim,
)
from fqfuse.primitives.description import described
from fqfuse.primitives.neglected import neglected

MATMUL = {"src": "u8[2,4]", "weights": "s8[4,3]", "dst": "f32[2,3]"}


@pytest.fixture(params=["numpy", "onednn"])
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param == "onednn":
        request.getfixturevalue("library")
    return str(request.param)


def both(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "src": rng.integers(0, 9, (2, 4)).astype(np.uint8),
        "weights": rng.integers(-9, 9, (4, 3)).astype(np.int8),
    }


def test_attributes_are_copied(runtime: str) -> None:
    scales = {"src": Scale((0.5,))}
    attr = PrimitiveAttr(scales=scales)
    made = prim("matmul", attr, engine=runtime, **MATMUL)
    args = both(np.random.default_rng(0))
    before = made.execute(args)
    scales["src"] = Scale((8.0,))
    scales["weights"] = Scale((8.0,))
    assert np.array_equal(made.execute(args), before)
    assert np.array_equal(before, args["src"] @ args["weights"].astype(np.float32) * 0.5)
    with pytest.raises(FrozenInstanceError):
        attr.post_ops = ()  # type: ignore[misc]


@pytest.mark.parametrize("make", [list, np.array])
def test_a_list_of_values_is_copied(runtime: str, make: Any) -> None:
    factor, zero = make([0.5]), make([1])
    attr = PrimitiveAttr({"src": Scale(factor)}, {"src": ZeroPoint(zero)})
    made = prim("matmul", attr, engine=runtime, **MATMUL)
    args = both(np.random.default_rng(0))
    factor[0], zero[0] = 8.0, 100
    expected = (args["src"].astype(np.int32) - 1) @ args["weights"].astype(np.float32) * 0.5
    assert np.array_equal(made.execute(args), expected)
    assert attr == PrimitiveAttr({"src": Scale((0.5,))}, {"src": ZeroPoint((1,))})


def test_scales_and_zero_points_come_at_execution(runtime: str) -> None:
    attr = PrimitiveAttr(
        {"src": Scale(()), "weights": Scale((), 2), "dst": Scale(())},
        {"src": ZeroPoint(()), "dst": ZeroPoint(())},
    )
    made = prim("matmul", attr, engine=runtime, **{**MATMUL, "dst": "s8[2,3]"})
    args = both(np.random.default_rng(1))
    for factor in (1.0, 2.0):
        scales = np.array([0.25, 0.5, 1], np.float32) * np.float32(factor)
        found = made.execute(
            {
                **args,
                "scales_src": np.array([0.5], np.float32),
                "scales_weights": scales,
                "scales_dst": np.array([2], np.float32),
                "zero_points_src": np.array([3], np.int32),
                "zero_points_dst": np.array([-1], np.int32),
            }
        )
        sums = (args["src"].astype(np.int32) - 3) @ args["weights"].astype(np.int32)
        expected = np.clip(np.rint(sums * scales * 0.5 / 2 - 1), -128, 127)
        assert np.array_equal(found, expected.astype(np.int8))


def test_every_argument_of_every_kind_may_have_them_then(runtime: str) -> None:
    ones = {f"scales_src_{i}": np.array([2.0**i], np.float32) for i in range(2)}
    args = {f"src_{i}": np.array([[1, 2]], np.int8) for i in range(2)}
    attr = PrimitiveAttr({"src_0": Scale(()), "src_1": Scale(())})
    tensors = {"src_0": "s8[1,2]", "src_1": "s8[1,2]"}
    joined = prim("concat", attr, engine=runtime, **tensors, dst="s8[1,4]", axis=1)
    assert joined.execute({**args, **ones}).tolist() == [[1, 2, 2, 4]]
    added = prim("binary", attr, engine=runtime, **tensors, dst="s8[1,2]", algorithm="add")
    assert added.execute({**args, **ones}).tolist() == [[3, 6]]
    turned = prim(
        "deconvolution",
        PrimitiveAttr({"src": Scale(()), "weights": Scale((), 1)}),
        engine=runtime,
        src="s8[1,1,2]",
        weights="s8[2,1,1]",
        dst="f32[1,2,2]",
    )
    found = turned.execute(
        {
            "src": np.array([[[1, 2]]], np.int8),
            # without VNNI the library halves weights behind s8, so odd ones are rounded
            "weights": np.array([[[2]], [[2]]], np.int8),
            "scales_src": np.array([2], np.float32),
            "scales_weights": np.array([1, 4], np.float32),
        }
    )
    assert found.tolist() == [[[4, 8], [16, 32]]]


@pytest.mark.parametrize(
    ("kind", "attr", "tensors", "status"),
    [
        ("matmul", PrimitiveAttr({"src": Scale((), 1)}), MATMUL, Status.unimplemented),
        ("matmul", PrimitiveAttr({"src": Scale((), -1)}), MATMUL, Status.invalid_arguments),
        ("matmul", PrimitiveAttr(), {**MATMUL, "dst": "f32[3,3]"}, Status.invalid_arguments),
        (
            "matmul",
            PrimitiveAttr(post_ops=(Eltwise("clip", 1.0, 0.0),)),
            MATMUL,
            Status.invalid_arguments,
        ),
        (
            "inner_product",
            PrimitiveAttr(zero_points={"src": ZeroPoint((1,))}),
            {**MATMUL, "weights": "s8[3,4]"},
            Status.unimplemented,
        ),
        (
            "reorder",
            PrimitiveAttr(zero_points={"src": ZeroPoint((1,))}),
            {"src": "f32[4]", "dst": "u8[4]"},
            Status.invalid_arguments,
        ),
    ],
)
def test_what_is_refused_has_the_librarys_status(
    runtime: str, kind: str, attr: PrimitiveAttr, tensors: dict[str, str], status: Status
) -> None:
    with pytest.raises(OneDnnError, match=status.name) as caught:
        prim(kind, attr, engine=runtime, **tensors)
    assert caught.value.status == status


NEGLECTED = {
    "a sum of eltwise": ("eltwise", Sum("old"), {}),
    "the slopes": ("eltwise", Prelu("slopes", 0), {"slopes": "f32[1,1]"}),
}


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("name", NEGLECTED)
def test_what_the_library_would_neglect_is_refused(runtime: str, name: str, engine: Engine) -> None:
    kind, op, operands = NEGLECTED[name]
    tensors = {"src": "f32[2,3]", "dst": "f32[2,3]"}
    words: dict[str, Any] = {**tensors, **operands, "algorithm": "relu"}
    attr = PrimitiveAttr(post_ops=(op,))
    what = described(kind, words, attr, "onednn-v3")
    assert on_library.descriptor(engine, what).impl_info
    assert (neglected(what) or "").startswith(name)
    with pytest.raises(Unimplemented, match="although" if runtime == "onednn" else None):
        prim(kind, attr, engine=runtime, **words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"kind": "gemm"}, "no primitive 'gemm'"),
        ({"src": "u8"}, "'u8' is no tensor"),
        ({"src": "f64[2,4]"}, "is no tensor"),
        ({"weights": None}, "lacks its argument weights"),
        ({"stride": (1,)}, "no argument or parameter 'stride'"),
        ({"engine": "gpu"}, "no engine 'gpu'"),
        ({"target": "onednn-v4"}, "no target 'onednn-v4'"),
        ({"scratchpad": "mine"}, "no mode 'mine'"),
        ({"attr": PrimitiveAttr(post_ops=(Binary("add", "other"),))}, "whose type is not told"),
        ({"attr": PrimitiveAttr(post_ops=(Eltwise("reLU"),))}, "no algorithm 'reLU'"),
        ({"attr": PrimitiveAttr(output_scales=Scale((1.0,)))}, "do not have output_scales"),
        (
            {"attr": PrimitiveAttr(post_ops=(Eltwise("relu", scale=2.0),))},
            "do not have the scale of an eltwise",
        ),
    ],
)
def test_words_that_are_wrong(words: dict[str, Any], told: str) -> None:
    given = {"kind": "matmul", **MATMUL, **words}
    with pytest.raises(InvalidInput, match=told):
        prim(given.pop("kind"), given.pop("attr", PrimitiveAttr()), **given)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"weights": None}, "lacks weights"),
        ({"src": np.zeros((2, 4), np.int8)}, "src is int8"),
        ({"src": np.zeros((2, 5), np.uint8)}, r"src is uint8\[2, 5\]"),
        ({"bias": np.zeros(3, np.float32)}, "reads no 'bias'"),
    ],
)
def test_arguments_that_are_wrong(args: dict[str, Any], told: str) -> None:
    given = {**both(np.random.default_rng(0)), **args}
    with pytest.raises(InvalidInput, match=told):
        prim("matmul", **MATMUL).execute({k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize(
    ("target", "attr"),
    [
        ("unified", PrimitiveAttr({"src_1": Scale(())})),
        ("unified", PrimitiveAttr({}, {"src_1": ZeroPoint(())})),
        ("onednn-v2", PrimitiveAttr({}, {"src_1": ZeroPoint(())})),
    ],
)
def test_there_is_no_such_argument(target: str, attr: PrimitiveAttr) -> None:
    with pytest.raises(OneDnnError, match="no argument src_1") as caught:
        prim("matmul", attr, target=target, **MATMUL)
    assert caught.value.status == Status.unimplemented


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_a_sum_has_no_output_scale(engine: str) -> None:
    attr = PrimitiveAttr(output_scales=Scale((0.5,)))
    words = {"src_0": "f32[2]", "dst": "f32[2]", "scales": (1.0,)}
    with pytest.raises(OneDnnError, match="has output scales") as caught:
        prim("sum", attr, engine=engine, target="onednn-v2", **words)
    assert caught.value.status == Status.unimplemented


TOWARDS_ZERO = 0xC00
"""FE_TOWARDZERO of x86."""


@pytest.mark.of_3_2("on SYCL other threads compute than the one that asks")
@pytest.mark.parametrize(("engine", "codes"), [("numpy", [1, 2, 2, -1]), ("onednn", [0, 1, 2, 0])])
def test_the_library_rounds_as_the_thread_is_set(
    engine: str, codes: list[int], request: pytest.FixtureRequest
) -> None:
    """NumPy half to even, always; the library, too, where nobody has set anything else."""
    if engine == "onednn":
        request.getfixturevalue("library")
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("the modes are those of glibc on x86-64")
    made = prim("reorder", engine=engine, src="f32[4]", dst="s8[4]")
    x = np.array([0.7, 1.5, 2.5, -0.7], np.float32)
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    libm.fesetround(TOWARDS_ZERO)
    try:
        found = made.execute({"src": x})
    finally:
        libm.fesetround(before)
    assert found.tolist() == codes
    assert made.execute({"src": x}).tolist() == [1, 2, 2, -1]


def test_words_that_are_no_words() -> None:
    """A factor in place of an operand's name, and no mask."""
    words = {"src": "u8[2,2]", "weights": "s8[2,2]", "dst": "s32[2,2]"}
    with pytest.raises(InvalidInput, match="which is no name"):
        prim("matmul", PrimitiveAttr(post_ops=(Sum(0.3),)), **words)  # type: ignore[arg-type]
    for mask in (None, 1.5):
        with pytest.raises(InvalidInput, match="a number or a name"):
            Scale((), mask)  # type: ignore[arg-type]


DEPTHWISE = {"src": "u8[2,20,4,3]", "weights": "s8[20,1,1,2,1]", "dst": "f32[2,20,3,3]"}


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.of_vnni("the code for depthwise convolutions is for VNNI")
@pytest.mark.parametrize(
    ("words", "behind"),
    [
        ({}, ()),
        ({"bias": "s32[20]", "dst": "bf16[2,20,3,3]"}, ()),
        ({"operand": "bf16[1,20,1,1]"}, (Binary("add", "operand"),)),
        ({"operand": "s8[1,20,1,1]"}, (Binary("ge", "operand"),)),
    ],
)
def test_a_zero_point_of_a_sum_of_floats(words: dict[str, Any], behind: tuple[Any, ...]) -> None:
    """Depthwise convolutions of u8 alone have code for it, with VNNI."""
    given = {**DEPTHWISE, **words}
    attr = PrimitiveAttr(post_ops=(Sum("old", 1.0, 5), *behind))
    rng = np.random.default_rng(3)
    made = [prim("convolution", attr, engine=e, **given) for e in ("numpy", "onednn")]
    types = {**made[0].description.tensors, **made[0].description.operands}
    args = {
        name: rng.integers(0, 99, type_.static_shape).astype(type_.dtype.numpy)
        for name, type_ in types.items()
        if name != "dst"
    }
    assert np.array_equal(*(each.execute(args) for each in made))


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
@pytest.mark.parametrize(
    ("told", "dtype", "taken"),
    [
        ("s32[1,3]", None, True),
        ("s8[1,3]", None, False),
        ("s32[2,3]", None, False),
        ("f32[1,3]", DType.F32, True),
        ("s32[1,3]", DType.F32, False),
    ],
)
def test_what_a_sum_reads_is_what_dst_held(
    engine: str, told: str, dtype: DType | None, taken: bool
) -> None:
    """Its type need not be told, and the library is told none: another one is refused."""
    attr = PrimitiveAttr(post_ops=(Sum("old", dtype=dtype),))
    words = {"src": "u8[1,2]", "weights": "s8[2,3]", "dst": "s32[1,3]", "old": told}
    if taken:
        described("matmul", words, attr, "onednn-v3")
        return
    with pytest.raises(InvalidInput, match="a sum of matmul reads 'old' as"):
        prim("matmul", attr, engine=engine, **words)
