"""MatMulInteger and ConvInteger as int8 primitives: every pair of types, zero points that are
absent, constant or fed, against exact integers.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.ir.types import DType
from fqfuse.plan.types import Plan, Step

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
TYPES = (np.uint8, np.int8)
ZEROS = ("absent", "constant", "fed")
ROWS, DEPTH, COLUMNS = 5, 20, 9


def codes(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    drawn = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    if drawn.size > 1:  # the whole range, in both factors
        drawn.reshape(-1)[:2] = info.min, info.max
    return drawn


def kind(dtype: type) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def matmul_integer(
    left: type, right: type, zeros: tuple[str, str], *, fed: bool, cast: bool
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A product of codes `a` and `b`, b an input or a constant, and all that may be fed."""
    given = {"a": codes(left, ROWS, DEPTH, seed=1), "b": codes(right, DEPTH, COLUMNS, seed=2)}
    names = []
    for name, dtype, zero in (("az", left, zeros[0]), ("bz", right, zeros[1])):
        names.append("" if zero == "absent" else name)
        if zero != "absent":
            given[name] = np.asarray(119 if dtype is np.uint8 else -9, dtype)
    feeds = {"a", *(["b"] if fed else [])}
    feeds |= {name for name, zero in zip(("az", "bz"), zeros, strict=True) if zero == "fed"}
    nodes = [node("MatMulInteger", ["a", "b", *names], ["i" if cast else "y"])]
    if cast:
        nodes.append(node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
    built = model(
        nodes,
        inputs={name: list(given[name].shape) for name in sorted(feeds)},
        constants={name: data for name, data in given.items() if name not in feeds},
        types={name: kind(data.dtype.type) for name, data in given.items()}
        | ({} if cast else {"y": TensorProto.INT32}),
    )
    return built, given


def exact(given: dict[str, np.ndarray]) -> np.ndarray:
    left, right = (
        given[name].astype(np.int64)
        - given.get(f"{name}z", np.zeros((), np.int64)).astype(np.int64)
        for name in "ab"
    )
    return left @ right


def the_product(plan: Plan) -> Step:
    (step,) = [step for step in plan.steps if step.primitive in ("matmul", "convolution")]
    assert not any("Integer" in other.primitive for other in plan.steps)
    assert plan.type(step.arg("weights")).dtype is DType.S8
    return step


@EACH_RUNTIME
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("left", "right"), list(product(TYPES, TYPES)))
def test_a_matrix_product_of_codes_is_one_primitive(
    left: type, right: type, fed: bool, cast: bool, runtime: str
) -> None:
    for zeros in product(ZEROS, ZEROS):
        built, given = matmul_integer(left, right, zeros, fed=fed, cast=cast)
        plan = fqfuse.compile(built)
        step = the_product(plan)
        assert plan.type(step.output).dtype is (DType.F32 if cast else DType.S32)
        session = fqfuse.InferenceSession(plan, runtime)
        for seed in (3, 4):
            feeds = {name: given[name] for name in plan.inputs}
            (found,) = session.run(None, feeds)
            np.testing.assert_array_equal(found, exact(given))
            given["a"] = codes(left, ROWS, DEPTH, seed=seed)
            if fed:
                given["b"] = codes(right, DEPTH, COLUMNS, seed=seed + 10)
            for name, zero in zip(("az", "bz"), zeros, strict=True):
                if zero == "fed":
                    given[name] = codes(given[name].dtype.type, 3, seed=seed)[2]
        if runtime == "onednn":
            (place,) = [p for p in session.placement() if p.step.name == step.name]
            assert place.runtime == "onednn", place.reason


SHAPES = [
    ((5, 20), (20, 9)),
    ((20,), (20, 9)),
    ((5, 20), (20,)),
    ((20,), (20,)),
    ((2, 5, 20), (20, 9)),
    ((5, 20), (2, 20, 9)),
    ((2, 5, 20), (2, 20, 9)),
    ((3, 1, 5, 20), (2, 20, 9)),
    ((2, 5, 20), (20,)),
    ((20,), (3, 2, 20, 9)),
    ((1, 1), (1, 1)),
    ((3, 0), (0, 2)),
]
WIRED = ("absent", "constant", "fed", "constants of a line", "fed, of a line", "of each matrix")


def zero_points(wired: str, dtype: type, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """One zero point, or one for each row or column, `axis`, of one matrix or of each."""
    if wired == "absent" or len(shape) < 2:
        return None if wired == "absent" else codes(dtype, 1, seed=7).reshape(())
    along = [*shape[:-2], 1, 1] if wired == "of each matrix" else [1]
    along[axis if len(along) > 1 else 0] = shape[axis] if "line" in wired or len(along) > 1 else 1
    drawn = codes(dtype, *along, seed=8)
    return drawn if "line" in wired or len(along) > 1 else drawn.reshape(())


@pytest.mark.parametrize(("left", "right"), list(product(TYPES, TYPES)))
@pytest.mark.parametrize("shapes", SHAPES)
def test_each_wiring_is_a_product_in_integers(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], left: type, right: type
) -> None:
    """Vectors, matrices and stacks of them; one zero point, or one for each row of the first or
    column of the second operand.
    """
    rng = np.random.default_rng([*shapes[0], *shapes[1], TYPES.index(left), TYPES.index(right)])
    each = list(product(WIRED, WIRED, [False, True], [False, True]))
    for index in rng.choice(len(each), 24, replace=False):
        of_rows, of_columns, fed, cast = each[index]
        given = {"a": codes(left, *shapes[0], seed=1), "b": codes(right, *shapes[1], seed=2)}
        exactly, names = [], ["a", "b"]
        for name, wired, axis in (("a", of_rows, -2), ("b", of_columns, -1)):
            dtype, shape = given[name].dtype.type, given[name].shape
            zero = zero_points(wired, dtype, shape, axis)
            names.append("" if zero is None else f"{name}z")
            taken = np.zeros((), np.int64)
            if zero is not None:
                given[f"{name}z"] = zero
                by_row = zero.ndim == 1 and zero.size == shape[axis] and axis == -2
                taken = (zero[:, None] if by_row else zero).astype(np.int64)
            exactly.append(given[name].astype(np.int64) - taken)
        feeds = {"a"} | ({"b"} if fed else set())
        feeds |= {f"{n}z" for n, w in (("a", of_rows), ("b", of_columns)) if "fed" in w}
        feeds &= set(given)
        nodes = [node("MatMulInteger", names, ["i" if cast else "y"])]
        if cast:
            nodes.append(node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
        built = model(
            nodes,
            inputs={name: list(given[name].shape) for name in sorted(feeds)},
            constants={name: data for name, data in given.items() if name not in feeds},
            types={name: kind(data.dtype.type) for name, data in given.items()}
            | ({} if cast else {"y": TensorProto.INT32}),
        )
        plan = fqfuse.compile(built)
        assert not any("MatMul" in step.primitive for step in plan.steps)
        sums = [step for step in plan.steps if step.primitive == "matmul"]
        assert sums
        if not cast:
            assert all(plan.type(step.outputs[0]).dtype is DType.S32 for step in sums)
        for runtime in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(plan, runtime).run(
                None, {name: given[name] for name in plan.inputs}
            )
            # sums of 20 products are integers that f32 holds
            np.testing.assert_array_equal(found, np.matmul(*exactly), f"{each[index]}")


@EACH_RUNTIME
@pytest.mark.parametrize(
    ("left", "right", "zeros"),
    [((2, 1000), (1000,), ()), ((1000,), (1000, 2), ()), ((2, 1000), (2, 1000, 3), (2, 1, 3))],
)
def test_long_products_of_vectors_and_stacks_are_exact(
    left: tuple[int, ...], right: tuple[int, ...], zeros: tuple[int, ...], runtime: str
) -> None:
    """Sums beyond 2^24, which f32 would round on the way."""
    given = {"a": np.full(left, 255, np.uint8), "b": np.full(right, 250, np.uint8)}
    given["b"][..., 0] = 3
    names = ["a", "b"]
    if zeros:
        names += ["", "bz"]
        given["bz"] = np.resize(np.array([1, 120, 7], np.uint8), zeros)
    given["scale"] = np.float32(0.1)
    nodes = [
        node("MatMulInteger", names, ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "scale"], ["y"]),
    ]
    built = model(
        nodes,
        inputs={"a": list(left)},
        constants={name: data for name, data in given.items() if name != "a"},
        types={"a": TensorProto.UINT8},
    )
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, {"a": given["a"]})
    np.testing.assert_array_equal(found, exact(given).astype(np.float32) * given["scale"])


@EACH_RUNTIME
@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("group", [1, 2])
def test_a_convolution_of_codes_is_one_primitive(
    source: type, zero: str, group: int, runtime: str
) -> None:
    given = {"a": codes(source, 2, 4, 7, 6, seed=1), "az": codes(source, 1, seed=2).reshape(())}
    weights = codes(np.int8, 6, 4 // group, 3, 2, seed=3)
    fed = {"a", *(["az"] if zero == "fed" else [])}
    built = model(
        [
            node(
                "ConvInteger",
                ["a", "w", *([] if zero == "absent" else ["az"])],
                ["y"],
                pads=[1, 0, 2, 1],
                strides=[2, 1],
                group=group,
            )
        ],
        inputs={name: list(given[name].shape) for name in sorted(fed)},
        constants={"w": weights} | ({"az": given["az"]} if zero == "constant" else {}),
        types={"a": kind(source), "az": kind(source), "y": TensorProto.INT32},
    )
    plan = fqfuse.compile(built)
    step = the_product(plan)
    session = fqfuse.InferenceSession(plan, runtime)
    (found,) = session.run(None, {name: given[name] for name in plan.inputs})
    (expected,) = onnx.reference.ReferenceEvaluator(built).run(
        None, {name: given[name] for name in fed}
    )
    np.testing.assert_array_equal(found, expected)
    if runtime == "onednn":
        (place,) = [p for p in session.placement() if p.step.name == step.name]
        assert place.runtime == "onednn", place.reason


@EACH_RUNTIME
@pytest.mark.parametrize("kind_of_weights", TYPES)
@pytest.mark.parametrize("form", ["one", "one of a vector", "channels"])
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_a_convolution_by_fed_zero_points_of_weights(
    group: int, cast: bool, form: str, kind_of_weights: type, runtime: str
) -> None:
    """Two convolutions in int8 of the same source: of the weights, and of ones."""
    size = {"one": (), "one of a vector": (1,), "channels": (6,)}[form]
    fed = {
        "a": codes(np.uint8, 2, 4, 7, 6, seed=1),
        "az": codes(np.uint8, 1, seed=2).reshape(()),
        "wz": codes(kind_of_weights, *size, seed=4),
    }
    moved = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": group}
    nodes = [node("ConvInteger", ["a", "w", "az", "wz"], ["i" if cast else "y"], **moved)]
    if cast:
        nodes.append(node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
    weights = codes(kind_of_weights, 6, 4 // group, 3, 2, seed=3)
    built = model(
        nodes,
        inputs={
            name: ["N", *data.shape[1:]] if name == "a" else list(data.shape)
            for name, data in fed.items()
        },
        constants={"w": weights},
        types={name: kind(data.dtype.type) for name, data in fed.items()}
        | ({} if cast else {"y": TensorProto.INT32}),
    )
    plan = fqfuse.compile(built)
    steps = [step for step in plan.steps if step.primitive == "convolution"]
    assert len(steps) == 2
    assert not any("Conv" in step.primitive for step in plan.steps)
    session = fqfuse.InferenceSession(plan, runtime)
    for seed in range(3):
        fed["az"], fed["wz"] = (
            codes(fed[name].dtype.type, 9, seed=seed)[: fed[name].size].reshape(fed[name].shape)
            for name in ("az", "wz")
        )
        zero = fed["wz"].astype(np.float64).reshape(-1, 1, 1, 1)
        exactly = model(
            [node("Conv", ["x", "v"], ["y"], **moved)],
            inputs={"x": [2, 4, 7, 6], "v": list(weights.shape)},
            types={"x": TensorProto.DOUBLE, "v": TensorProto.DOUBLE},
        )
        given = {"x": fed["a"].astype(np.float64) - float(fed["az"]), "v": weights - zero}
        (expected,) = onnx.reference.ReferenceEvaluator(exactly).run(None, given)
        np.testing.assert_array_equal(session.run(None, fed)[0], expected)
    if runtime == "onednn":
        places = {p.step.name: p for p in session.placement()}
        assert all(places[step.name].runtime == "onednn" for step in steps)


@EACH_RUNTIME
@pytest.mark.parametrize("right", TYPES)
def test_a_matrix_product_by_fed_zero_points_of_columns(right: type, runtime: str) -> None:
    weights = codes(right, DEPTH, COLUMNS, seed=2)
    built = model(
        [node("MatMulInteger", ["a", "w", "", "wz"], ["y"])],
        inputs={"a": ["N", 2, DEPTH], "wz": [COLUMNS]},
        constants={"w": weights},
        types={"a": TensorProto.INT8, "wz": kind(right), "y": TensorProto.INT32},
    )
    plan = fqfuse.compile(built)
    assert sum(step.primitive == "matmul" for step in plan.steps) == 2
    assert not any("Integer" in step.primitive for step in plan.steps)
    session = fqfuse.InferenceSession(plan, runtime)
    for seed in range(3):
        a, zeros = codes(np.int8, 3, 2, DEPTH, seed=seed), codes(right, COLUMNS, seed=seed + 9)
        (found,) = session.run(None, {"a": a, "wz": zeros})
        np.testing.assert_array_equal(
            found, a.astype(np.int64) @ (weights.astype(np.int64) - zeros.astype(np.int64))
        )


@EACH_RUNTIME
@pytest.mark.parametrize("cast", [False, True])
def test_sums_that_f32_does_not_hold_are_exact(cast: bool, runtime: str) -> None:
    depth = 600  # 600 * 255 * 255 > 2**25: oneDNN's own s32 would be an f32
    built = model(
        [node("MatMulInteger", ["a", "b"], ["i" if cast else "y"])]
        + ([node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)] if cast else []),
        inputs={"a": [3, depth], "b": [depth, 4]},
        types=dict.fromkeys("ab", TensorProto.UINT8) | ({} if cast else {"y": TensorProto.INT32}),
    )
    a, b = np.full((3, depth), 255, np.uint8), np.full((depth, 4), 255, np.uint8)
    a[1, 0], b[0, 2] = 254, 252
    exactly = a.astype(np.int64) @ b.astype(np.int64)
    assert (exactly % 2).any()
    assert exactly.min() > 1 << 24
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, {"a": a, "b": b})
    np.testing.assert_array_equal(found, exactly.astype(found.dtype))


@EACH_RUNTIME
@pytest.mark.parametrize(("left", "right"), list(product(TYPES, TYPES)))
def test_a_quantized_product_of_two_inputs(left: type, right: type, runtime: str) -> None:
    """QLinearMatMul, whose second operand no quantizer of the model makes."""
    scalars = {"as": np.float32(0.02), "bs": np.float32(0.03), "ys": np.float32(0.4)}
    zeros = {"az": codes(left, 1)[0], "bz": codes(right, 1)[0], "yz": np.uint8(128)}
    built = model(
        [node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])],
        inputs={"a": [2, ROWS, DEPTH], "b": [2, DEPTH, COLUMNS]},
        constants={**scalars, **zeros},
        types={"a": kind(left), "b": kind(right), "y": TensorProto.UINT8},
    )
    plan = fqfuse.compile(built)
    the_product(plan)
    feeds = {"a": codes(left, 2, ROWS, DEPTH), "b": codes(right, 2, DEPTH, COLUMNS, seed=5)}
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, feeds)
    sums = (feeds["a"].astype(np.int64) - zeros["az"]) @ (feeds["b"].astype(np.int64) - zeros["bz"])
    real = sums * float(scalars["as"]) * float(scalars["bs"]) / float(scalars["ys"]) + 128
    assert (np.abs(found - np.clip(real, 0, 255)) <= 0.5 + 1e-4).all()  # 1e-4: f32's rounding


def test_what_stays_an_operator_says_why() -> None:
    built = model(
        [
            node("DequantizeLinear", ["a", "s"], ["d"]),
            node("DequantizeLinear", ["w", "s"], ["v"]),
            node("ConvTranspose", ["d", "v"], ["y"]),
        ],
        inputs={"a": [1, 2, 5, 5], "w": [2, 3, 2, 2]},
        constants={"s": np.float32(0.5)},
        types={"a": TensorProto.UINT8, "w": TensorProto.INT8},
    )
    plan = fqfuse.compile(built)
    (decision,) = [d for d in plan.decision_records if d.rule == "deconvolution in int8"]
    assert "packs its weights beforehand" in decision.reason


@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_zero_points_without_a_number_are_told(op: str, place: int) -> None:
    inputs = ["a", "w", "", ""]
    inputs[place] = "z"
    conv = op == "ConvInteger"
    built = model(
        [
            node(op, inputs[: place + 1], ["i"]),
            node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        inputs={"a": [1, 2, 5] if conv else [3, 2]},
        constants={
            "w": codes(np.int8, *((3, 2, 1) if conv else (2, 3))),
            "z": np.zeros(0, np.uint8 if place == 2 else np.int8),
        },
        types={"a": TensorProto.UINT8},
    )
    with pytest.raises(fqfuse.InvalidModel, match="hold no number"):
        fqfuse.compile(built)


MISFITS = [
    ("MatMulInteger", (3, 5), (5, 4), 3, (3,)),
    ("MatMulInteger", (3, 5), (5, 1), 3, (3,)),  # would make three columns of one
    ("MatMulInteger", (3, 5), (5, 4), 3, (3, 1)),
    ("MatMulInteger", (3, 5), (5, 4), 3, (3, 1, 1)),  # would make three matrices of one
    ("MatMulInteger", (3, 5), (5,), 3, (5,)),
    ("MatMulInteger", (1, 5), (5, 4), 2, (4,)),  # would make four rows of one
    ("MatMulInteger", (3, 5), (5, 4), 2, (1, 4)),
    ("ConvInteger", (1, 2, 5), (4, 2, 3), 3, (3,)),
    ("ConvInteger", (1, 2, 5), (1, 2, 3), 3, (3,)),
    ("ConvInteger", (1, 2, 5), (2, 2, 3), 3, (2, 1)),
    ("ConvInteger", (1, 2, 5), (2, 2, 3), 2, (2,)),
]


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("op", "left", "right", "place", "zeros"), MISFITS)
def test_zero_points_of_another_shape_are_told(
    op: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    place: int,
    zeros: tuple[int, ...],
    fed: bool,
) -> None:
    """They are neither one number nor one for each row, column or output channel."""
    given = {"a": codes(np.uint8, *left), "b": codes(np.uint8, *right)}
    given["z"] = codes(np.uint8, *zeros)
    names = ["a", "b", *[""] * (place - 2), "z"]
    feeds = {name: data for name, data in given.items() if fed or name == "a"}
    built = model(
        [node(op, names, ["y"])],
        inputs={name: list(data.shape) for name, data in feeds.items()},
        constants={name: data for name, data in given.items() if name not in feeds},
        types=dict.fromkeys(given, TensorProto.UINT8) | {"y": TensorProto.INT32},
    )
    with pytest.raises(fqfuse.InvalidModel, match="the zero points 'z'"):
        fqfuse.compile(built)


@EACH_RUNTIME
def test_a_factor_without_elements_leaves_no_elements(runtime: str) -> None:
    built = model(
        [
            node("MatMulInteger", ["a", "w"], ["i"]),
            node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            node("Mul", ["f", "none"], ["y"]),
        ],
        inputs={"a": [3, 2]},
        constants={"w": codes(np.int8, 2, 1), "none": np.zeros(0, np.float32)},
        types={"a": TensorProto.UINT8},
    )
    session = fqfuse.InferenceSession(fqfuse.compile(built), runtime)
    assert session.run(None, {"a": codes(np.uint8, 3, 2)})[0].shape == (3, 0)


def test_saved_and_loaded(tmp_path) -> None:
    built, given = matmul_integer(np.uint8, np.uint8, ("fed", "fed"), fed=True, cast=False)
    plan = fqfuse.compile(built)
    fqfuse.save_plan(plan, tmp_path / "p.onnx")
    loaded = fqfuse.load_plan(tmp_path / "p.onnx")
    assert loaded == plan
    (found,) = fqfuse.InferenceSession(loaded).run(
        None, {name: given[name] for name in plan.inputs}
    )
    np.testing.assert_array_equal(found, exact(given))


@EACH_RUNTIME
@pytest.mark.parametrize("dtype", TYPES)
def test_zero_points_by_columns_are_taken_off_codes_near_them(dtype: type, runtime: str) -> None:
    """What is left fits s8: one product, without a zero point on its weights."""
    zeros = np.arange(40, 58).astype(dtype)
    left = codes(np.int8, 70, 18, seed=3).astype(np.int64) // 4
    weights = (zeros + left).astype(dtype)  # 8..88
    built = model(
        [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])],
        inputs={"a": [ROWS, 70]},
        constants={"b": weights, "bz": zeros, "az": np.uint8(77)},
        types={"a": TensorProto.UINT8, "y": TensorProto.INT32},
    )
    plan = fqfuse.compile(built)
    step = the_product(plan)
    assert step.attr.zero_points.keys() == {"src"}
    np.testing.assert_array_equal(plan.constants[step.arg("weights") or ""], left)
    a = codes(np.uint8, ROWS, 70)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"a": a})
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 77) @ left)


@EACH_RUNTIME
@pytest.mark.parametrize("dtype", TYPES)
def test_zero_points_by_columns(dtype: type, runtime: str) -> None:
    """Weights less their zero points need nine bits."""
    weights = codes(dtype, 70, 18, seed=3)
    weights[0], weights[1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    zeros = codes(dtype, 18, seed=4)
    built = model(
        [
            node("MatMulInteger", ["a", "b", "az", "bz"], ["i"]),
            node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        inputs={"a": [ROWS, 70], "az": []},
        constants={"b": weights, "bz": zeros},
        types={"a": TensorProto.UINT8, "az": TensorProto.UINT8},
    )
    plan = fqfuse.compile(built)
    products = [step for step in plan.steps if step.primitive == "matmul"]
    assert [plan.type(step.arg("src")).dtype.value for step in products] == ["u8", "u8", "f32"]
    a, zero = codes(np.uint8, ROWS, 70), np.uint8(77)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"a": a, "az": zero})
    # all sums and products here are integers below 2**24, which f32 holds
    expected = (a.astype(int) - 77) @ (weights.astype(int) - zeros)
    np.testing.assert_array_equal(found, expected)


@EACH_RUNTIME
@pytest.mark.parametrize("channels", [4, 512])  # sums within 2^24, and beyond
def test_sums_by_fed_kernels_are_rounded_once(channels: int, runtime: str) -> None:
    image = np.full((1, channels, 6, 6), 255, np.uint8)
    image[:, ::7] = 254
    kernel = np.full((2, channels, 3, 3), 127, np.int8)
    kernel[:, ::5] -= 1
    nodes = [
        node("ConvInteger", ["a", "w"], ["i"]),
        node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    built = model(
        nodes,
        inputs={"a": image.shape, "w": kernel.shape},
        types={"a": TensorProto.UINT8, "w": TensorProto.INT8},
    )
    found = fqfuse.InferenceSession(built, runtime).run(None, {"a": image, "w": kernel})[0]
    one = (image[0, :, 0, 0].astype(np.int64) * kernel[0, :, 0, 0]).sum() * 9
    assert found.shape == (1, 2, 4, 4)
    assert (found == np.float32(one)).all()


@EACH_RUNTIME
def test_a_constant_first_factor_is_codes_as_well(runtime: str) -> None:
    """It was decoded, and sums beyond 2^24 that cancel were rounded on the way."""
    depth = 4096
    a, b = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 127, np.int8)
    a[0, ::3], b[depth // 2 :], b[-1] = 253, -127, 1
    built = model(
        [
            node("MatMulInteger", ["a", "b"], ["i"]),
            node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        inputs={"b": list(b.shape)},
        constants={"a": a},
        types={"b": TensorProto.INT8},
    )
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, {"b": b})
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


@EACH_RUNTIME
def test_few_columns_of_long_sums_are_multiplied_in_int8(runtime: str) -> None:
    """Weights less their zero points need nine bits: f32 would round the sums on the way."""
    depth, columns = 4096, 4
    weights, zeros = codes(np.uint8, depth, columns, seed=3), np.uint8([0, 255, 7, 130])
    built = model(
        [
            node("MatMulInteger", ["a", "b", "", "bz"], ["i"]),
            node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        inputs={"a": [ROWS, depth]},
        constants={"b": weights, "bz": zeros},
        types={"a": TensorProto.UINT8},
    )
    a = codes(np.uint8, ROWS, depth)
    (found,) = fqfuse.InferenceSession(fqfuse.compile(built), runtime).run(None, {"a": a})
    # two sums of at most depth * 255 * 128, each rounded to f32, and their sum
    bound = 3 * 2.0**-24 * depth * 255 * 128
    expected = a.astype(np.int64) @ (weights.astype(np.int64) - zeros)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


@EACH_RUNTIME
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("zero", [None, 100, "channels"])
def test_constant_weights_of_a_convolution_by_any_constant_zero_points(
    zero: int | str | None, group: int, runtime: str
) -> None:
    weights = codes(np.uint8, 6, 4 // group, 3, 2, seed=3)
    zeros = codes(np.uint8, 6, seed=5) if zero == "channels" else np.asarray(zero or 0, np.uint8)
    moved = {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": group}
    built = model(
        [node("ConvInteger", ["a", "w", "az", *([] if zero is None else ["wz"])], ["y"], **moved)],
        inputs={"a": ["N", 4, 7, 6]},
        constants={"w": weights, "az": np.uint8(77)} | ({} if zero is None else {"wz": zeros}),
        types={"a": TensorProto.UINT8, "y": TensorProto.INT32},
    )
    plan = fqfuse.compile(built)
    assert sum(step.primitive == "convolution" for step in plan.steps) == 2
    assert not any("Conv" in step.primitive for step in plan.steps)
    a = codes(np.uint8, 2, 4, 7, 6, seed=1)
    (found,) = fqfuse.InferenceSession(plan, runtime).run(None, {"a": a})
    exactly = model(
        [node("Conv", ["x", "v"], ["y"], **moved)],
        inputs={"x": list(a.shape), "v": list(weights.shape)},
        types={"x": TensorProto.DOUBLE, "v": TensorProto.DOUBLE},
    )
    along = zeros.astype(np.float64).reshape(-1, 1, 1, 1)
    given = {"x": a.astype(np.float64) - 77, "v": weights - along}
    (expected,) = onnx.reference.ReferenceEvaluator(exactly).run(None, given)
    np.testing.assert_array_equal(found, expected)


@EACH_RUNTIME
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("zero", ["absent", "one", "channels"])
@pytest.mark.parametrize("kind_of_weights", TYPES)
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_a_convolution_by_fed_weights(
    target: str, kind_of_weights: type, zero: str, group: int, cast: bool, runtime: str
) -> None:
    """Sums of 4608 products, beyond what f32 holds of them one by one; other weights each time."""
    shape = (6, 512 // group, 3, 3)
    fed = {
        "a": codes(np.uint8, 1, 512, 4, 5, seed=1),
        "az": np.asarray(77, np.uint8),
        "w": codes(kind_of_weights, *shape, seed=2),
    }
    names = ["a", "w", "az"]
    if zero != "absent":
        fed["wz"] = codes(kind_of_weights, *((6,) if zero == "channels" else (1,)), seed=3)
        names.append("wz")
    moved = {"pads": [1, 0, 1, 1], "group": group}
    nodes = [node("ConvInteger", names, ["i" if cast else "y"], **moved)]
    if cast:
        nodes.append(node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
    built = model(
        nodes,
        inputs={name: list(data.shape) for name, data in fed.items()},
        types={name: kind(data.dtype.type) for name, data in fed.items()}
        | ({} if cast else {"y": TensorProto.INT32}),
    )
    plan = fqfuse.compile(built, target=target)
    assert not any("Conv" in step.primitive for step in plan.steps)
    exactly = onnx.reference.ReferenceEvaluator(
        model(
            [node("Conv", ["x", "v"], ["y"], **moved)],
            inputs={"x": list(fed["a"].shape), "v": list(shape)},
            types={"x": TensorProto.DOUBLE, "v": TensorProto.DOUBLE},
        )
    )
    session = fqfuse.InferenceSession(plan, runtime)
    for seed in range(3):
        fed["w"] = codes(kind_of_weights, *shape, seed=seed)
        zeros = fed.get("wz", np.zeros(1)).astype(np.float64).reshape(-1, 1, 1, 1)
        given = {"x": fed["a"].astype(np.float64) - 77, "v": fed["w"] - zeros}
        (found,), (expected,) = session.run(None, fed), exactly.run(None, given)
        np.testing.assert_array_equal(found, expected.astype(found.dtype))


WINDOWS = {
    "padded": ((2, 8, 7, 6), (6, 8, 3, 3), {"pads": [1, 1, 0, 1]}),
    "1x1": ((2, 8, 7, 6), (16, 8, 1, 1), {}),
    "groups": ((2, 8, 7, 6), (8, 4, 3, 3), {"group": 2, "strides": [2, 2]}),
    "depthwise": ((2, 8, 7, 6), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    "one dimension": ((2, 4, 11), (5, 4, 3), {"dilations": [2]}),
    "three dimensions": ((1, 4, 5, 6, 7), (3, 4, 2, 2, 2), {}),
    "first layer": ((1, 3, 32, 32), (16, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
}


@EACH_RUNTIME
@pytest.mark.parametrize("form", ["f32", "codes", "quantized", "dynamic source"])
@pytest.mark.parametrize("name", WINDOWS)
def test_weights_of_convolutions_that_are_computed(name: str, form: str, runtime: str) -> None:
    shape, kernel, moved = WINDOWS[name]
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal(shape).astype(np.float32)
    constants = {
        "xs": np.float32(0.03),
        "xz": np.uint8(117),
        "ws": np.full(kernel[0], 2.0**-7, np.float32),
        "wz": np.zeros(kernel[0], np.int8),
        "b": rng.standard_normal(kernel[0]).astype(np.float32),
    }
    weights = rng.integers(-127, 128, kernel)
    fed = weights.astype(np.int8) if form == "codes" else np.float32(weights * 2.0**-7)
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
        node("DequantizeLinear", ["w" if form == "codes" else "wq", "ws", "wz"], ["v"], axis=0),
    ]
    if form == "dynamic source":
        nodes[0] = node("DynamicQuantizeLinear", ["x"], ["q", "xs", "xz"])
        del constants["xs"], constants["xz"]
    source, factor = ("x", "w") if form == "f32" else ("d", "v")
    used = {"f32": [], "codes": [0, 1, 3]}.get(form, [0, 1, 2, 3])
    built = model(
        [
            *(nodes[i] for i in used),
            node("Conv", [source, factor, "b"], ["p"], **moved),
            node("Relu", ["p"], ["y"]),
        ],
        inputs={"x": ["N", *shape[1:]], "w": list(kernel)},
        constants=constants,
        types={"w": kind(fed.dtype.type)},
    )
    plan = fqfuse.compile(built)
    (step,) = [step for step in plan.steps if step.primitive == "convolution"]
    assert (plan.type(step.arg("src")).dtype is DType.F32) == (form == "f32")
    session = fqfuse.InferenceSession(plan, runtime)
    for turned in (fed, np.ascontiguousarray(fed[::-1])):
        feeds = {"x": x, "w": turned}
        (found,), (expected,) = session.run(None, feeds), run_ort(built, feeds)
        # sums of at most 147 products, in f32 there
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6 * np.abs(expected).max())
    if runtime == "onednn":
        (place,) = [p for p in session.placement() if p.step.name == step.name]
        assert place.runtime == "onednn", place.reason
