"""The three schemes of attributes say the same in their own words; the depthwise post-op runs on each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.codes import emulated

from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType
from fqfuse.onednn.capi import OneDnnError, Status
from fqfuse.plan.targets import TARGETS
from fqfuse.primitives import (
    Binary,
    DepthwiseConv,
    Eltwise,
    Prelu,
    PrimitiveAttr,
    Scale,
    Sum,
    ZeroPoint,
    prim,
)

ENGINES = [
    ("onednn-v3", "numpy"),
    ("onednn-v3", "onednn"),
    ("onednn-v2", "numpy"),
    ("onednn-v2", "onednn"),
    ("unified", "numpy"),
    ("unified", "onednn"),
]
OUT = np.array([0.25, 0.5, 2, 1], np.float32)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def requires(engine: str, request: pytest.FixtureRequest) -> None:
    if engine == "onednn":
        request.getfixturevalue("of_the_rules")


def arrays(rng: np.random.Generator, tensors: dict[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    found = {}
    types = {"u8": np.uint8, "s8": np.int8, "f32": np.float32}
    for name, text in tensors.items():
        dtype, sizes = text[:-1].split("[")
        shape = tuple(map(int, sizes.split(",")))
        low = 0 if dtype == "u8" else -8
        found[name] = rng.integers(low, 8, shape).astype(types[dtype])
    return found


@pytest.mark.parametrize(("target", "engine"), ENGINES)
def test_the_depthwise_post_op(
    target: str, engine: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    if (target, engine, emulated()) == ("onednn-v2", "onednn", "avx2"):
        why = "oneDNN 3.2 computes some of 4 channels wrongly by AVX2"
        request.applymarker(pytest.mark.xfail(reason=why))
    depthwise = DepthwiseConv("kernel", "shift", 3, 2, 1, weights_scale=Scale((), 1))
    post_ops = (Eltwise("relu"), depthwise, Eltwise("relu"))
    attr = (
        PrimitiveAttr(output_scales=Scale((0.125,)), post_ops=post_ops)
        if target == "onednn-v2"
        else PrimitiveAttr({"src": Scale((0.25,)), "weights": Scale((0.5,))}, post_ops=post_ops)
    )
    tensors = {"src": "u8[1,3,5,5]", "weights": "s8[4,3,1,1]"}
    operands = {"kernel": "s8[4,1,3,3]", "shift": "f32[4]"}
    made = prim(
        "convolution", attr, engine=engine, target=target, **tensors, **operands, dst="u8[1,4,3,3]"
    )
    args = arrays(rng, tensors | operands)
    found = made.execute({**args, "scales_kernel": OUT})
    first = np.einsum("ncij,oc->noij", args["src"].astype(int), args["weights"][..., 0, 0])
    between = np.pad(np.clip(np.rint(first * 0.125), 0, 255), [(0, 0), (0, 0), (1, 1), (1, 1)])
    sums = np.zeros((1, 4, 3, 3))
    for i, j in np.ndindex(3, 3):
        sums += (
            between[:, :, i : i + 5 : 2, j : j + 5 : 2]
            * args["kernel"][None, :, 0, i, j, None, None]
        )
    scale, shift = OUT.reshape(1, 4, 1, 1), args["shift"].reshape(1, 4, 1, 1)
    expected = (sums + shift) * scale if target == "onednn-v2" else sums * scale + shift
    assert np.array_equal(found, np.clip(np.rint(expected), 0, 255).astype(np.uint8))


PRODUCTS = {
    "convolution": ("u8[2,3,4,4]", "s8[4,3,2,2]", "[2,4,3,3]"),
    "grouped convolution": ("u8[2,6,4,4]", "s8[2,2,3,2,2]", "[2,4,3,3]"),
    "deconvolution": ("u8[2,3,4,4]", "s8[4,3,2,2]", "[2,4,5,5]"),
    "inner_product": ("u8[2,3,2]", "s8[4,3,2]", "[2,4]"),
    "matmul": ("u8[2,5]", "s8[5,4]", "[2,4]"),
}


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_an_output_scale_is_one_of_arguments(
    name: str, bias: bool, rng: np.random.Generator
) -> None:
    """A bias of the old scheme is in the accumulator's units; eltwise post-ops have a scale there."""
    kind = name.rsplit(maxsplit=1)[-1]
    src, weights, dst = PRODUCTS[name]
    tensors = {"src": src, "weights": weights, "other": f"f32{dst}"}
    if bias:
        tensors["bias"] = "f32[1,4]" if kind == "matmul" else "f32[4]"
    args = arrays(rng, tensors)
    zero = {} if kind == "inner_product" else {"dst": ZeroPoint((3,))}
    old = PrimitiveAttr(
        output_scales=Scale((), 2),
        zero_points=zero,
        post_ops=(Eltwise("linear", 0.5, 1.0, scale=2.0), Binary("add", "other")),
    )
    weights_mask = {"matmul": 2, "grouped convolution": 3}.get(name, 1)
    new = PrimitiveAttr(
        {"weights": Scale((), weights_mask)},
        zero,
        (Eltwise("linear", 0.5, 1.0), Eltwise("linear", 2.0), Binary("add", "other")),
    )
    real = dict(args)
    if bias:
        real["bias"] = (args["bias"] * OUT.reshape(args["bias"].shape)).astype(np.float32)
    found = [
        prim(kind, attr, engine=engine, target=target, **tensors, dst=f"s8{dst}").execute(given)
        for target, attr, given in (
            ("onednn-v2", old, {**args, "output_scales": OUT}),
            ("onednn-v3", new, {**real, "scales_weights": OUT}),
        )
        for engine in ("numpy", "onednn")
    ]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert len(np.unique(found[0])) > 5


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("values", [(0.5, 2.0), (1.0, 0.25)])
def test_a_factor_of_a_post_op_may_come_at_execution(values: tuple[float, float]) -> None:
    """An output scale behind a bias is a post-op on the library, whose factor it wants at creation."""
    attr = PrimitiveAttr(output_scales=Scale(()))
    words = {"src": "u8[1,2]", "weights": "s8[2,2]", "bias": "f32[1,2]", "dst": "f32[1,2]"}
    made = prim("matmul", attr, engine="onednn", target="onednn-v2", **words)
    args = {
        "src": np.array([[3, 4]], np.uint8),
        "weights": np.array([[1, 0], [0, 1]], np.int8),
        "bias": np.array([[1, -2]], np.float32),
    }
    for value in values:
        found = made.execute({**args, "output_scales": np.array([value], np.float32)})
        assert found.tolist() == [[4 * value, 2 * value]]


def test_the_operand_of_a_binary_post_op_has_a_scale_at_run_time() -> None:
    attr = PrimitiveAttr(post_ops=(Binary("add", "other", Scale((), 2)),))
    made = prim(
        "matmul",
        attr,
        target="unified",
        src="u8[1,2]",
        weights="s8[2,2]",
        dst="f32[1,2]",
        other="s8[1,2]",
    )
    found = made.execute(
        {
            "src": np.array([[1, 2]], np.uint8),
            "weights": np.array([[1, 0], [0, 1]], np.int8),
            "other": np.array([[10, 10]], np.int8),
            "scales_other": np.array([0.5, 2], np.float32),
        }
    )
    assert found.tolist() == [[6, 22]]


@pytest.mark.parametrize("fed", [False, True])
def test_the_operand_of_a_binary_post_op_has_a_scale_by_any_mask(
    fed: bool, rng: np.random.Generator
) -> None:
    """Exact: whole numbers, and powers of two. An operand that is broadcast along a dimension, too."""
    words = {"src": "u8[2,3,4]", "weights": "s8[2,4,5]", "dst": "f32[2,3,5]"}
    for shape in ([2, 3, 5], [2, 1, 5], [1, 3, 1]):
        tensors = {"src": words["src"], "weights": words["weights"], "other": f"s8{shape}"}
        args = arrays(rng, tensors)
        for mask in range(8):
            along = [size if mask >> axis & 1 else 1 for axis, size in enumerate(shape)]
            factors = rng.choice([0.25, 0.5, 2.0], along).astype(np.float32)
            held = Scale(() if fed else tuple(factors.ravel().tolist()), mask)
            attr = PrimitiveAttr(post_ops=(Binary("sub", "other", held),))
            made = prim("matmul", attr, target="unified", **words, other=tensors["other"])
            found = made.execute(args | ({"scales_other": factors.ravel()} if fed else {}))
            sums = args["src"].astype(int) @ args["weights"]
            assert np.array_equal(found, sums - args["other"] * factors), (shape, mask)


@pytest.mark.parametrize("algorithm", ["add", "sub", "mul", "max", "min", "div", "lt", "eq"])
@pytest.mark.parametrize(("mask", "count"), [(0, 1), (2, 3), (3, 6)])
@pytest.mark.parametrize("dtype", ["u8", "s8", "s32"])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_operand_of_a_binary_post_op_has_a_zero_point(
    algorithm: str, mask: int, count: int, dtype: str, scaled: bool, rng: np.random.Generator
) -> None:
    """It is scale * (operand - zero_point), and exact here: whole numbers, and powers of two."""
    scale = Scale((0.25,)) if scaled else None
    shift = tuple(rng.integers(-40, 200, count).tolist())
    words = {"src": "u8[2,4]", "weights": "s8[4,3]", "other": f"{dtype}[2,3]"}
    args = arrays(rng, {"src": words["src"], "weights": words["weights"]})
    args["other"] = rng.integers(100 if dtype == "s32" else 0, 120, (2, 3)).astype(
        {"u8": np.uint8, "s8": np.int8, "s32": np.int32}[dtype]
    )
    grid = np.resize(np.array(shift), (2, 3)) if mask else shift[0]
    real = (args["other"].astype(np.float64) - grid) * (0.25 if scaled else 1)
    sums = args["src"].astype(np.float64) @ args["weights"]
    functions: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    functions |= {"max": np.maximum, "min": np.minimum, "div": np.divide}
    functions |= {"lt": np.less, "eq": np.equal}
    for op, given in (
        (Binary(algorithm, "other", scale, ZeroPoint(shift, mask)), {}),
        (
            Binary(algorithm, "other", scale, ZeroPoint((), mask)),
            {"zero_points_other": np.array(shift, np.int32)},
        ),
    ):
        attr = PrimitiveAttr(post_ops=(op,))
        made = prim("matmul", attr, target="unified", **words, dst="f32[2,3]")
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = functions[algorithm](sums, real).astype(np.float32)
        assert np.array_equal(made.execute({**args, **given}), expected, equal_nan=True)


STRAY = [
    "per_channel_tnc",
    "per_channel_nchw",
    "per_channel_oihw",
    "per_channel_goihw",
    "per_dim_11",
    "per_dim_1+per_dim_2",
    "per_dim_0+per_dim_3",
]


@pytest.mark.parametrize("mask", STRAY)
@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 1.0, 1.0)], ids=len)
@pytest.mark.parametrize(("target", "engine"), ENGINES)
def test_a_mask_of_dimensions_that_are_not_there_is_an_invalid_argument(
    target: str, engine: str, values: tuple[float, ...], mask: Any, request: pytest.FixtureRequest
) -> None:
    """oneDNN 3.2 neglects them when it makes a reorder, or slopes: a matrix has no tnc."""
    requires(engine, request)
    zeros, other = ZeroPoint(tuple(map(int, values)), mask), {"other": "s8[2,3]"}
    old = target == "onednn-v2"
    factors = (
        {"output_scales": Scale(values, mask)} if old else {"scales": {"dst": Scale(values, mask)}}
    )
    cases: list[tuple[str, PrimitiveAttr, dict[str, str]]] = [
        ("reorder", PrimitiveAttr(**factors), {}),  # type: ignore[arg-type]
        ("reorder", PrimitiveAttr(zero_points={"dst": zeros}), {}),
        ("matmul", PrimitiveAttr(post_ops=(Prelu("slopes", mask),)), {"slopes": "f32[2,3]"}),
    ]
    if target == "unified":
        cases += [
            ("matmul", PrimitiveAttr(post_ops=(Binary("add", "other", scale, zero),)), other)
            for scale, zero in ((Scale(values, mask), None), (None, zeros))
        ]
    for kind, attr, operands in cases:
        words = {"src": "f32[2,3]", "dst": "s8[2,3]"}
        if kind == "matmul":
            words = {"src": "u8[2,4]", "weights": "s8[4,3]", "dst": "s8[2,3]"}
        with pytest.raises(OneDnnError) as caught:
            prim(kind, attr, engine=engine, target=target, **words, **operands)
        assert caught.value.status is Status.invalid_arguments, kind


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
@pytest.mark.parametrize("target", ["onednn-v2", "unified", "onednn-v3"])
@pytest.mark.parametrize("dst", ["f32", "s32"])
def test_a_sum_reads_the_destination_as_a_type_of_its_size(
    target: str, engine: str, dst: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    attr = PrimitiveAttr(post_ops=(Sum("old", dtype=DType.U8),))
    words = {"src": "u8[1,2]", "weights": "s8[2,3]", "dst": f"{dst}[1,3]"}
    with pytest.raises(OneDnnError) as caught:
        prim("matmul", attr, engine=engine, target=target, **words)
    assert caught.value.status is Status.unimplemented


@pytest.mark.parametrize("target", ["onednn-v2", "onednn-v3"])
def test_other_schemes_have_no_word_for_it(target: str) -> None:
    attr = PrimitiveAttr(post_ops=(Binary("add", "other", None, ZeroPoint((1,))),))
    with pytest.raises(InvalidInput, match="do not have the zero point of the operand"):
        prim(
            "eltwise",
            attr,
            target=target,
            src="f32[2]",
            dst="f32[2]",
            algorithm="relu",
            other="u8[2]",
        )


def test_a_number_that_is_no_code_has_no_zero_point() -> None:
    attr = PrimitiveAttr(post_ops=(Binary("add", "other", None, ZeroPoint((1,))),))
    words = {"src": "f32[2]", "dst": "f32[2]", "algorithm": "relu", "other": "f32[2]"}
    with pytest.raises(OneDnnError, match="which is f32 and no integer") as caught:
        prim("eltwise", attr, target="unified", **words)
    assert caught.value.status == Status.unimplemented


@pytest.mark.parametrize("dst", ["f32", "u8", "s8"])
@pytest.mark.parametrize("dtype", ["f32", "u8", "s8"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_scales_of_a_sum_are_those_of_its_sources(
    count: int, dtype: str, dst: str, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    """At creation or at execution, where the other schemes have them at creation alone."""
    requires("onednn", request)
    factors = rng.choice([0.25, 0.5, 2, -1], count)
    roles = [f"src_{index}" for index in range(count)]
    words = dict.fromkeys(roles, f"{dtype}[2,5]")
    args = arrays(rng, words)
    known = {role: Scale((float(f),)) for role, f in zip(roles, factors, strict=True)}
    later = {f"scales_{role}": np.float32([f]) for role, f in zip(roles, factors, strict=True)}
    found = [
        prim("sum", PrimitiveAttr(scales), target="unified", **words, dst=f"{dst}[2,5]").execute(
            {**args, **given}
        )
        for scales, given in ((known, {}), (dict.fromkeys(roles, Scale(())), later))
    ]
    for target in ("onednn-v2", "onednn-v3"):
        for engine in ("numpy", "onednn"):
            made = prim(
                "sum",
                target=target,
                engine=engine,
                **words,
                dst=f"{dst}[2,5]",
                scales=tuple(factors.tolist()),
            )
            found.append(made.execute(args))
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_a_sum_of_unified_has_one_scale_for_each_source() -> None:
    words = {"src_0": "u8[2,2]", "src_1": "u8[2,2]", "src_2": "u8[2,2]", "dst": "f32[2,2]"}
    with pytest.raises(InvalidInput, match="no argument or parameter 'scales'"):
        prim("sum", target="unified", **words, scales=(1.0, 1.0, 1.0))
    for role in ("src_0", "src_2", "bias"):
        attr = PrimitiveAttr({role: Scale((1.0, 2.0), 2)})
        with pytest.raises(OneDnnError) as caught:
            prim("sum", attr, target="unified", **words)
        assert caught.value.status == Status.unimplemented


@pytest.mark.parametrize(
    ("target", "attr", "taken"),
    [
        ("onednn-v2", PrimitiveAttr({"src": Scale((1.0,))}), False),
        ("onednn-v2", PrimitiveAttr(output_scales=Scale((1.0,))), True),
        ("unified", PrimitiveAttr({"src": Scale((1.0,))}), True),
        ("unified", PrimitiveAttr({"src": Scale((1.0,) * 2, 1)}), False),
        ("onednn-v2", PrimitiveAttr(post_ops=(Sum("old", 0.5, 3),)), True),
    ],
)
def test_each_scheme_takes_what_its_steps_may_have(
    target: str, attr: PrimitiveAttr, taken: bool
) -> None:
    words = {"src": "u8[2,4]", "weights": "s8[4,3]", "dst": "s8[2,3]"}
    if taken:
        assert prim("matmul", attr, target=target, **words)
        return
    with pytest.raises(OneDnnError, match="unimplemented") as caught:
        prim("matmul", attr, target=target, **words)
    assert caught.value.status == Status.unimplemented


def test_unified_pooling_has_a_destination_scale_and_the_others_do_not() -> None:
    attr = PrimitiveAttr({"dst": Scale((0.5,))})
    words = {"src": "u8[1,1,2]", "dst": "u8[1,1,1]", "algorithm": "max", "kernel": (2,)}
    found = prim("pooling", attr, target="unified", **words).execute(
        {"src": np.array([[[3, 9]]], np.uint8)}
    )
    assert found.tolist() == [[[18]]]
    for target in ("onednn-v2", "onednn-v3"):
        with pytest.raises(OneDnnError, match="unimplemented"):
            prim("pooling", attr, target=target, **words)


STORED: dict[str, dict[str, Any]] = {
    "convolution": {"src": "u8[1,2,3]", "weights": "s8[4,2,1]", "dst": "[1,4,3]"},
    "deconvolution": {"src": "u8[1,2,3]", "weights": "s8[4,2,1]", "dst": "[1,4,3]"},
    "matmul": {"src": "u8[2,3]", "weights": "s8[3,4]", "dst": "[2,4]"},
    "pooling": {
        "src": "f32[1,2,4]",
        "dst": "[1,2,2]",
        "algorithm": "avg_exclude_padding",
        "kernel": (2,),
        "strides": (2,),
    },
    "binary": {"src_0": "f32[2,3]", "src_1": "f32[2,3]", "dst": "[2,3]", "algorithm": "add"},
    "concat": {"src_0": "f32[1,3]", "src_1": "f32[2,3]", "dst": "[3,3]", "axis": 0},
    "inner_product": {"src": "u8[2,3]", "weights": "s8[4,3]", "dst": "[2,4]"},
    "prelu": {"src": "s8[2,3]", "weights": "f32[1,3]", "dst": "[2,3]"},
    "sum": {"src_0": "f32[2,3]", "src_1": "f32[2,3]", "dst": "[2,3]"},
    "reorder": {"src": "f32[2,3]", "dst": "[2,3]"},
    "softmax": {"src": "f32[2,3]", "dst": "[2,3]", "axis": 1},
    "layer_normalization": {"src": "f32[2,3]", "dst": "[2,3]"},
    "resampling": {"src": "f32[1,2,3]", "dst": "[1,2,6]", "algorithm": "nearest"},
    "reduction": {"src": "f32[2,3]", "dst": "[2,1]", "algorithm": "sum"},
    "lrn": {"src": "f32[1,4,2]", "dst": "[1,4,2]", "local_size": 3},
    "batch_normalization": {
        "src": "f32[2,4,2]",
        "dst": "[2,4,2]",
        "mean": "f32[4]",
        "variance": "f32[4]",
    },
}


@pytest.mark.parametrize("dst", ["u8", "s8"])
@pytest.mark.parametrize("kind", STORED)
def test_every_destination_has_a_scale_and_a_zero_point_on_unified(
    kind: str, dst: str, rng: np.random.Generator
) -> None:
    """dst = op(...)/s + z, from what the same primitive stores in f32; by any mask."""
    words = {**STORED[kind]}
    shape = words.pop("dst")
    args = arrays(rng, {name: text for name, text in words.items() if "[" in str(text)})
    if "variance" in args:
        args["variance"] = np.abs(args["variance"]) + 1
    real = prim(kind, target="unified", **words, dst=f"f32{shape}").execute(args)
    low, high = (0, 255) if dst == "u8" else (-128, 127)
    for mask in range(1 << real.ndim):
        along = [size if mask >> axis & 1 else 1 for axis, size in enumerate(real.shape)]
        scale, zero = rng.choice([0.125, 0.25], along), rng.integers(0, 9, along)
        attr = PrimitiveAttr(
            {"dst": Scale(tuple(scale.ravel().tolist()), mask)},
            {"dst": ZeroPoint(tuple(zero.ravel().tolist()), mask)},
        )
        if kind == "sum" and mask:
            continue  # its scales are its sources'
        found = prim(kind, attr, target="unified", **words, dst=f"{dst}{shape}").execute(args)
        assert np.array_equal(found, np.clip(np.rint(real / scale + zero), low, high)), mask
        assert len(np.unique(found)) > 1


def test_all_others_have_none() -> None:
    """An eltwise is f32, a shuffle moves codes, and a recurrent layer's result has the source's."""
    kinds = TARGETS["unified"].primitives
    assert kinds.keys() - STORED.keys() == {"eltwise", "shuffle", "rnn"}
    assert STORED.keys() - kinds.keys() == {"inner_product", "sum"}


@pytest.mark.parametrize("kind", ["binary", "concat"])
def test_sources_that_are_added_or_joined_have_scales_by_any_mask(
    kind: str, rng: np.random.Generator
) -> None:
    """Judged by decoded sources. The other schemes, and the library, refuse them."""
    shapes = {"binary": ([2, 1, 3], [1, 4, 3]), "concat": ([2, 1, 3], [2, 3, 3])}[kind]
    for mask in range(8):
        tensors = {f"src_{index}": f"s8{shape}" for index, shape in enumerate(shapes)}
        args, scales, decoded = arrays(rng, tensors), {}, []
        for index, shape in enumerate(shapes):
            along = [size if mask >> axis & 1 else 1 for axis, size in enumerate(shape)]
            factors = rng.choice([0.25, 0.5, 2.0], along)
            scales[f"src_{index}"] = Scale(tuple(factors.ravel().tolist()), mask)
            decoded.append(args[f"src_{index}"] * factors)
        param = {"binary": {"algorithm": "sub"}, "concat": {"axis": 1}}[kind]
        words = {**tensors, **param, "dst": "f32[2,4,3]"}
        expected = decoded[0] - decoded[1] if kind == "binary" else np.concatenate(decoded, 1)
        found = prim(kind, PrimitiveAttr(scales), target="unified", **words).execute(args)
        assert np.array_equal(found, expected), mask
        if mask:
            for target in ("onednn-v2", "onednn-v3"):
                with pytest.raises(OneDnnError, match="unimplemented"):
                    prim(kind, PrimitiveAttr(scales), target=target, **words)


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("name", PRODUCTS)
def test_zero_points_by_channels_are_those_of_the_library(
    name: str, rng: np.random.Generator
) -> None:
    """On `unified`, too; of weights along the columns of a matrix there alone, at execution too."""
    kind = name.rsplit(maxsplit=1)[-1]
    src, weights, dst = PRODUCTS[name]
    words = {"src": src, "weights": weights, "dst": f"f32{dst}"}
    args = arrays(rng, {"src": src, "weights": weights})
    points = ZeroPoint(tuple(rng.integers(-9, 9, args["src"].shape[1]).tolist()), 2)
    attr = PrimitiveAttr(zero_points={"src": points})
    if kind == "inner_product":
        with pytest.raises(OneDnnError, match="no zero points of src"):
            prim(kind, attr, target="unified", **words)
        return
    found = [
        prim(kind, attr, target=target, engine=engine, **words).execute(args)
        for target, engine in (ENGINES[0], ENGINES[1], ENGINES[4], ENGINES[5])
    ]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    if kind == "matmul":
        columns = ZeroPoint(tuple(rng.integers(-9, 9, args["weights"].shape[1]).tolist()), 2)
        rows = args["src"].astype(int) - np.array(points.values)
        expected = rows @ (args["weights"] - np.array(columns.values))
        for given in (columns, ZeroPoint((), 2)):
            both = PrimitiveAttr(zero_points={"src": points, "weights": given})
            made = prim(kind, both, target="unified", **words)
            fed = (
                {} if given.values else {"zero_points_weights": np.array(columns.values, np.int32)}
            )
            assert np.array_equal(made.execute({**args, **fed}), expected)
    for wrong in (ZeroPoint(points.values[1:], 2), ZeroPoint((1, 2), 1)):
        with pytest.raises((OneDnnError, InvalidInput)):
            prim(kind, PrimitiveAttr(zero_points={"src": wrong}), target="unified", **words)


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_the_scale_of_a_softmaxs_source_multiplies_its_result(
    engine: str, request: pytest.FixtureRequest
) -> None:
    requires(engine, request)
    attr = PrimitiveAttr({"src": Scale((0.25,))})
    words = {"src": "s8[1,2]", "dst": "f32[1,2]", "axis": 1}
    found = prim("softmax", attr, engine=engine, **words).execute({"src": np.int8([[0, 1]])})
    share = 1 / (1 + np.exp(1))
    # an approximation of exp, and a division
    np.testing.assert_allclose(found, [[0.25 * share, 0.25 * (1 - share)]], rtol=1e-6)


def test_a_reduction_of_codes_over_other_dimensions_than_the_last(rng: np.random.Generator) -> None:
    words = {"src": "u8[2,6,5]", "dst": "u8[2,1,5]"}
    args = arrays(rng, {"src": words["src"]})
    for algorithm, function in (
        ("max", np.max),
        ("min", np.min),
        ("sum", np.sum),
        ("mul", np.prod),
    ):
        expected = np.minimum(function(args["src"].astype(np.int64), axis=1, keepdims=True), 255)
        for target in TARGETS:
            found = prim("reduction", algorithm=algorithm, target=target, **words).execute(args)
            assert np.array_equal(found, expected), (algorithm, target)


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_a_scale_of_no_argument_of_a_sum(engine: str, request: pytest.FixtureRequest) -> None:
    """Of `onednn-v2`, which has the sum of `onednn-v3`: refused alike, with or without values."""
    requires(engine, request)
    for scale in (Scale(()), Scale((2.0,))):
        with pytest.raises(OneDnnError) as refused:
            prim(
                "sum",
                PrimitiveAttr({"bias": scale}),
                engine=engine,
                target="onednn-v2",
                src_0="u8[2,3]",
                dst="u8[2,3]",
                scales=(1.0,),
            )
        assert refused.value.status is Status.invalid_arguments
