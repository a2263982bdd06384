"""FakeQuantize whose ranges are fed: on both runtimes its definition in float64, for every range that
f32 has, alone and in front of products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.fake_quantizes import ENDS, Ranges, allowed, check_values
from support.onnx_cases import model, node, random

import fqfuse
from fqfuse.plan.arguments import SOURCE_AT_RUN_TIME
from fqfuse.plan.types import Plan

EACH_RUNTIME = pytest.mark.parametrize("runtime", ["numpy", "onednn"])
OPENVINO = "org.openvinotoolkit"
LEVELS = (2, 3, 15, 16, 127, 255, 256)


def quantizer(levels: int, output: str = "y") -> onnx.NodeProto:
    return node("FakeQuantize", ["x", *ENDS], [output], name="fq", domain=OPENVINO, levels=levels)


def built(
    nodes: Sequence[onnx.NodeProto],
    x: Sequence[int | str | None],
    ranges: Sequence[int | str] = (),
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model whose ranges are fed, but those among the constants."""
    held = constants or {}
    inputs = {"x": x, **{end: ranges for end in ENDS if end not in held}}
    return model(list(nodes), inputs=inputs, constants=held, domains={OPENVINO: 1})


# -- what is fed -----------------------------------------------------------------------------------


def bound_of(rng: np.random.Generator) -> float:
    if rng.random() < 0.3:
        return float(np.float32(rng.choice([-1, 1]) * 2.0 ** rng.uniform(-149, 127.9)))
    return float(np.float32(rng.standard_normal() * 10.0 ** rng.uniform(-3, 3)))


def drawn(rng: np.random.Generator) -> tuple[np.float32, np.float32]:
    """The ends of a range, in any order: equal, next to each other, at 0, as far apart as f32 has
    them.
    """
    one, two = np.float32(bound_of(rng)), np.float32(bound_of(rng))
    forms = {
        0: (one, one),
        1: (one, np.nextafter(one, np.float32(rng.choice([-np.inf, np.inf])))),
        2: (np.float32(0), two),
        3: (np.float32(-3.3e38), np.float32(3.2e38)),
        4: (np.float32(3.2e38), np.float32(-3.3e38)),
        5: (-abs(one), abs(one)),
    }
    return forms.get(int(rng.integers(0, 9)), (one, two))


def numbers(rng: np.random.Generator, low: np.float32, high: np.float32, last: int) -> np.ndarray:
    """Numbers around a range: ties, its ends and their neighbours, the ends of f32."""
    a, b = float(low), float(high)
    ties = a + (rng.integers(0, last, 16) + 0.5) * ((b - a) / last)
    spread = min(a, b) + abs(b - a) * rng.uniform(-0.3, 1.3, 32)
    ends = np.array([low, high, 0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 3e38, -3e38], np.float32)
    next_to = [np.nextafter(ends[:2], np.float32(to)) for to in (-np.inf, np.inf)]
    inside = np.clip(np.concatenate([ties, spread]), -3.4e38, 3.4e38).astype(np.float32)
    return np.concatenate([inside, ends, *next_to])


def fed(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Ranges of both sides; those of the output at most 5e38 wide, which f32 decodes."""
    outputs = (np.clip(bound, np.float32(-2.5e38), np.float32(2.5e38)) for bound in drawn(rng))
    return dict(zip(ENDS, map(np.asarray, (*drawn(rng), *outputs)), strict=True))


# -- the quantizer alone ---------------------------------------------------------------------------


@EACH_RUNTIME
@pytest.mark.parametrize("levels", LEVELS)
def test_every_range_gives_what_the_definition_gives(levels: int, runtime: str) -> None:
    plan = fqfuse.compile(built([quantizer(levels)], ["N", 62]))
    assert not any(step.op == "FakeQuantize" for step in plan.steps)
    session, rng = fqfuse.InferenceSession(plan, runtime, 1), np.random.default_rng(levels)
    for _ in range(60):
        ranges = fed(rng)
        x = numbers(rng, ranges["il"][()], ranges["ih"][()], levels - 1).reshape(1, -1)
        check_values(session.run(None, {"x": x, **ranges})[0], x, ranges, levels)


@EACH_RUNTIME
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (3, 1, 1), (1, 3, 1, 5), (4,), (1, 1, 1, 1)])
def test_ranges_along_axes(shape: tuple[int, ...], runtime: str) -> None:
    sizes = (2, 3, 5, 4) if shape[-1] == 4 else (2, 3, 4, 5)
    plan = fqfuse.compile(built([quantizer(256)], ["N", *sizes[1:]], shape))
    assert not any(step.op == "FakeQuantize" for step in plan.steps)
    session, rng = fqfuse.InferenceSession(plan, runtime, 1), np.random.default_rng(3)
    for _ in range(20):
        each = [fed(rng) for _ in range(int(np.prod(shape)))]
        ranges = {name: np.array([one[name] for one in each]).reshape(shape) for name in ENDS}
        middle = (ranges["il"] / 2 + ranges["ih"] / 2).astype(np.float64)
        width = np.abs(ranges["ih"].astype(np.float64) - ranges["il"])
        x = middle + width * rng.uniform(-0.7, 0.7, sizes)
        x = np.clip(x, -3.4e38, 3.4e38).astype(np.float32)
        check_values(session.run(None, {"x": x, **ranges})[0], x, ranges, 256)


@EACH_RUNTIME
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_every_target(target: str, runtime: str, tmp_path) -> None:
    if target == "unified" and runtime == "onednn":
        pytest.skip("the NumPy runtime alone runs plans for unified")
    plan = fqfuse.compile(built([quantizer(256)], ["N", 62]), target=target)
    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    loaded = fqfuse.load_plan(tmp_path / "plan.onnx")
    assert loaded == plan
    session, rng = fqfuse.InferenceSession(loaded, runtime, 1), np.random.default_rng(5)
    for _ in range(30):
        ranges = fed(rng)
        x = numbers(rng, ranges["il"][()], ranges["ih"][()], 255).reshape(1, -1)
        check_values(session.run(None, {"x": x, **ranges})[0], x, ranges, 256)


@EACH_RUNTIME
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ENDS)
def test_a_range_that_is_no_number_gives_nan(name: str, wrong: float, runtime: str) -> None:
    session = fqfuse.InferenceSession(built([quantizer(256)], [1, 3], (1, 3)), runtime, 1)
    ranges = {
        other: np.full((1, 3), value, np.float32)
        for other, value in zip(ENDS, (-1, 1, -1, 1), strict=True)
    }
    ranges[name][0, 1] = wrong
    (found,) = session.run(None, {"x": np.float32([[0.3, 0.3, 0.3]]), **ranges})
    assert np.isnan(found[0, 1])
    np.testing.assert_allclose(found[0, [0, 2]], 0.3, atol=1 / 255)


def test_what_stays_whole_says_why() -> None:
    cases = {
        "8 bits": built([quantizer(257)], [2, 3]),
        "a constant is quantized": model(
            [quantizer(256)],
            inputs={end: [] for end in ENDS},
            constants={"x": random((2, 3))},
            domains={OPENVINO: 1},
        ),
        "how many dimensions": built([node("Reshape", ["z", "s"], ["x"]), quantizer(256)], [2, 3]),
        "how many ranges": built([quantizer(256)], [2, 3], ("C",)),
    }
    unknown = cases["how many dimensions"].graph.input
    unknown[0].name = "z"
    unknown.append(onnx.helper.make_tensor_value_info("s", TensorProto.INT64, ["R"]))
    for reason, proto in cases.items():
        plan = fqfuse.compile(proto)
        (told,) = [d for d in plan.decision_records if d.rule == "split_computed_ranges"]
        assert reason in told.reason
        assert told.hint
        assert any(step.primitive == "onnx.FakeQuantize" for step in plan.steps)


# -- in front of products --------------------------------------------------------------------------

RNG = np.random.default_rng(11)
MATRIX = RNG.integers(-127, 128, (16, 12)).astype(np.int8)
KERNEL = RNG.integers(-127, 128, (6, 3, 3, 2)).astype(np.int8)
GROUPED = RNG.integers(-127, 128, (6, 1, 3, 3)).astype(np.int8)


def product(
    op: str, weights: np.ndarray, axis: int, x: Sequence[int | str], **attributes: object
) -> onnx.ModelProto:
    """A quantizer by fed ranges, a product with weights by a scale for each channel, bias, relu."""
    count = weights.shape[axis]
    scales = np.linspace(0.004, 0.02, count).astype(np.float32)
    along = (count,) if op == "MatMul" else (count, *[1] * (weights.ndim - 2))
    nodes = [
        quantizer(256, "d"),
        node("DequantizeLinear", ["w", "ws"], ["v"], axis=axis),
        node(op, ["d", "v"], ["m"], **attributes),
        node("Add", ["m", "b"], ["y"]),
    ]
    constants = {"w": weights, "ws": scales, "b": random(along, 5)}
    return built(nodes, x, (), constants)


PRODUCTS = {
    "matmul": product("MatMul", MATRIX, 1, ["N", 16]),
    "matmul of three dimensions": product("MatMul", MATRIX, 1, ["N", 3, 16]),
    "convolution": product("Conv", KERNEL, 0, ["N", 3, "H", 5]),
    "padded convolution": product("Conv", KERNEL, 0, ["N", 3, 6, 5], pads=[1, 0, 2, 1]),
    "strided convolution": product(
        "Conv", KERNEL, 0, ["N", 3, 6, 5], strides=[2, 1], pads=[1, 1, 1, 1]
    ),
    "convolution in groups": product(
        "Conv", GROUPED, 0, ["N", 6, 5, 5], group=6, auto_pad="SAME_UPPER"
    ),
}


def clear(rng: np.random.Generator, shape: Sequence[int], ranges: Ranges) -> np.ndarray:
    """Numbers that are next to no tie and no bound, of a range that f32 tells apart."""
    low, high = (float(ranges[name]) for name in ("il", "ih"))
    index = rng.integers(1, 255, shape) + rng.uniform(-0.4, 0.4, shape)
    return (low + index * (high - low) / 255).astype(np.float32)


def usual(rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Ranges of every form around usual numbers, for the input and for the output."""
    forms = [
        (-1.0, 1.0), (0.0, 2.5), (1.5, -0.75), (-3.0, -1.0), (20.0, 21.0), (-128 / 64, 127 / 64),
        (0.0, 0.0), (0.5, 0.5), (-1e-6, 4.0), (1e-30, 3e-30), (-2e20, 1e20),
    ]  # fmt: skip
    for low, high in forms:
        of_input = forms[int(rng.integers(0, 6))]
        yield dict(zip(ENDS, map(np.float32, (*of_input, low, high)), strict=True))


def in_float64(proto: onnx.ModelProto, decoded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product of decoded values in float64, and the sum of the sizes of what it adds."""
    held = {i.name: onnx.numpy_helper.to_array(i) for i in proto.graph.initializer}
    (node_,) = [n for n in proto.graph.node if n.op_type in ("MatMul", "Conv")]
    (decode,) = [n for n in proto.graph.node if n.op_type == "DequantizeLinear"]
    axis = decode.attribute[0].i
    along = [-1 if index == axis else 1 for index in range(held["w"].ndim)]
    weights = held["w"] * held["ws"].astype(np.float64).reshape(along)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node_.attribute}
    made = model(
        [node(node_.op_type, ["x", "w"], ["y"], **attributes)],
        inputs={"x": decoded.shape},
        constants={"w": weights},
        types={"x": TensorProto.DOUBLE},
    )
    run = onnx.reference.ReferenceEvaluator(made)
    (sums,) = run.run(None, {"x": decoded})
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.abs(weights), "w"))
    (sizes,) = onnx.reference.ReferenceEvaluator(made).run(None, {"x": np.abs(decoded)})
    return sums + held["b"], sizes + np.abs(held["b"])


@EACH_RUNTIME
@pytest.mark.parametrize("case", PRODUCTS)
def test_products_read_codes_by_fed_ranges(case: str, runtime: str) -> None:
    proto = PRODUCTS[case]
    plan = fqfuse.compile(proto)
    (step,) = in_int8(plan)
    session, rng = fqfuse.InferenceSession(plan, runtime, 1), np.random.default_rng(1)
    kind = plan.type("x").shape
    for number, ranges in enumerate(usual(rng)):
        x = clear(rng, [1 + number % 3 if isinstance(size, str) else size for size in kind], ranges)
        if "H" in kind:
            x = clear(rng, [2, 3, 4 + number % 3, 5], ranges)
        low, high = (float(ranges[name]) for name in ("ol", "oh"))
        exact, _, _ = allowed(x, ranges, 256)
        expected, sizes = in_float64(proto, exact / 255 * (high - low) + low)
        (found,) = session.run(None, {"x": x, **ranges})
        # scales, the sum of codes, and the shift by the range, which is at most twice the range
        span = max(abs(low), abs(high), abs(high - low)) / max(abs(low), abs(high), 1e-37)
        assert (np.abs(found - expected) <= 8 * 2.0**-24 * span * sizes).all(), (ranges, case)
    if runtime == "onednn":
        (place,) = [p for p in session.placement() if p.step.name == step.name]
        assert place.runtime == "onednn", place.reason


def in_int8(plan: Plan) -> list:
    return [step for step in plan.steps if step.arg(SOURCE_AT_RUN_TIME[0]) is not None]
