"""The proof that an int8 step cannot saturate, held to the emulation: what it calls exact is exact on
the worst data, and what it does not differs there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.finding_networks import Net
from support.onnx_cases import model, node
from support.plan_text import parse_plan
from support.runtime_plans import one_step
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.accuracy.remedy import fixed
from fqfuse.accuracy.simulation import samples_for, subject_of
from fqfuse.errors import InvalidInput
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import Binary, DepthwiseConv, Eltwise, PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.saturation import (
    StepSums,
    codes_of_plan,
    codes_written,
    steps_at_risk,
    sums_of_plan,
)
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.numerics import PROFILES
from fqfuse.runtime.numpy_runtime import run_step

U8, S8, S32, F32 = DType.U8, DType.S8, DType.S32, DType.F32
ISAS = ("avx512_core", "avx2", "sse41")


def worst(weights: np.ndarray, largest: int) -> list[np.ndarray]:
    """For each row of weights [N, K] the codes that make its sum largest, and those that make it
    smallest.
    """
    rows = [np.where(row > 0, largest, 0) for row in weights]
    return [np.uint8(x) for row in rows for x in (row, largest - row)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("largest", [255, 200, 127])
@pytest.mark.parametrize("depth", [2, 7, 300])
def test_the_channels_are_those_that_differ_on_the_worst_data(
    isa: str, largest: int, depth: int
) -> None:
    rng = np.random.default_rng([largest, depth])
    weights = np.clip(rng.normal(0, rng.uniform(20, 90, (12, 1)), (12, depth)), -128, 127)
    weights = weights.astype(np.int8)
    x = np.stack(worst(weights, largest))
    args = [("src", x), ("weights", np.ascontiguousarray(weights.T))]
    plan, step, live = one_step("matmul", "MatMul", args, S32)
    plan = clipped(plan, largest)
    (sums,) = sums_of_plan(plan, isa)
    assert sums.codes == (0, largest)
    results = [run_step(plan, step, live, profile=PROFILES[each])[0] for each in ("vnni", isa)]
    assert sums.channels == tuple(np.flatnonzero((results[0] != results[1]).any(axis=0)).tolist())
    assert sums.exact or largest > 127
    assert steps_at_risk(plan, isa) == (() if sums.exact else (sums.index,))


@pytest.mark.parametrize(
    ("depth", "largest", "rounded"),
    [(518, 255, ()), (519, 255, (1,)), (1040, 127, ()), (1041, 127, (1,))],
)
def test_sums_that_pass_2_to_24_are_told(
    depth: int, largest: int, rounded: tuple[int, ...]
) -> None:
    """By the weights and the codes that there can be: 519 * 255 * 127 is the first that does."""
    weights = np.zeros((depth, 3), np.int8)
    weights[:, 1], weights[::2, 2] = 127, -127
    args = [("src", np.zeros((1, depth), np.uint8)), ("weights", weights)]
    plan, *_ = one_step("matmul", "MatMul", args, S32)
    for isa in ("vnni", *ISAS):
        (sums,) = sums_of_plan(clipped(plan, largest), isa)
        assert sums.rounded == rounded
        assert sums.exact == (not rounded and not sums.channels)


def clipped(plan: Plan, largest: int) -> Plan:
    """The plan, with a step in front that stores codes up to `largest`."""
    attr = PrimitiveAttr(post_ops=(Eltwise("clip", 0.0, float(largest)),))
    front = Step("front", "eltwise", "Clip", (("src", "real"),), ("src",), {}, attr, ("front",))
    values = {**plan.values, "real": TensorType(F32, plan.values["src"].shape)}
    return Plan(
        plan.name,
        plan.target,
        ("real",),
        plan.outputs,
        values,
        plan.constants,
        (front, *plan.steps),
    )


@pytest.mark.parametrize("kind", ["convolution", "deconvolution"])
@pytest.mark.parametrize("src", [U8, S8], ids=lambda d: d.value)
@pytest.mark.parametrize("groups", [1, 2])
def test_channels_of_convolutions(kind: str, src: DType, groups: int) -> None:
    """On random data of the largest and the smallest codes no other channel differs."""
    rng = np.random.default_rng(groups)
    shape = (8 * groups, 8, 3, 3) if kind == "convolution" else (8 * groups, 8, 2, 2)
    weights = rng.normal(0, 10, shape)
    channel = rng.uniform(0.2, 6, shape[0] if kind == "convolution" else shape[1])
    weights *= channel.reshape((-1, 1, 1, 1) if kind == "convolution" else (1, -1, 1, 1))
    weights = np.clip(weights, -128, 127).astype(np.int8)
    weights[(slice(0, 2),) if kind == "convolution" else (slice(None), slice(0, 2))] &= -2  # even
    x = rng.choice(src.range, (4, 8 * groups, 6, 6)).astype(src.numpy)
    op = "Conv" if kind == "convolution" else "ConvTranspose"
    args = [("src", x), ("weights", weights)]
    plan, step, live = one_step(kind, op, args, S32, params={"group": groups})
    for isa in ISAS:
        (sums,) = sums_of_plan(plan, isa)
        assert sums.as_dict()["sums"] == ("pairs" if src is U8 else "halved")
        results = [run_step(plan, step, live, profile=PROFILES[each])[0] for each in ("vnni", isa)]
        differ = set(np.flatnonzero((results[0] != results[1]).any(axis=(0, 2, 3))).tolist())
        assert differ
        assert differ <= set(sums.channels)
        assert len(sums.channels) < sums.of == 8 * groups


LAYER = """
plan layer target=onednn-v3
  in %x : u8[STEPS,8,12]
  const @w : s8[1,48,12] = fill(0)
  const @r : s8[1,48,12] = fill(0)
  #0 %y : f32[STEPS,1,8,12] = rnn<LSTM>(src=%x, w=@w, r=@r) rnn_data_qparams([127,128]:0) rnn_weights_qparams([400]:0) ; layer
  out %y
"""


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("largest", [40, 63, 127])
def test_hidden_values_of_layers(isa: str, steps: int, largest: int) -> None:
    """Of one step those that can differ do, on the worst codes; of several none but those of a direction
    in which one can.
    """
    rng = np.random.default_rng([steps, largest])
    plan = parse_plan(LAYER.replace("STEPS", str(steps)))
    w, r = (rng.integers(-40, 41, (1, 48, 12)).astype(np.int8) for _ in "wr")
    w[0, 39, 4:6], w[0, 41, :2] = largest, -largest  # cells of hidden values 3 and 5
    r[0, 19, :2] = largest  # of 7
    plan = replace(plan, constants={**plan.constants, "w": w, "r": r})
    (sums,) = sums_of_plan(plan, isa)
    own = (3, 5, 7) if largest == 127 else ()
    assert sums.channels == (own if steps == 1 else tuple(range(12 if own else 0)))
    assert steps_at_risk(plan, isa) == ((0,) if own else ())
    x = np.zeros((steps, 8, 12), np.uint8)
    x[0, 0, 4:6] = x[0, 1, :2] = 255
    results = [
        fqfuse.InferenceSession(plan, "numpy", isa=each).run(None, {"x": x})[0]
        for each in ("vnni", isa)
    ]
    differ = np.flatnonzero((results[0] != results[1]).any(axis=(0, 1, 2)))
    assert set(differ) <= set(sums.channels)
    if own:
        assert {3, 5} <= set(differ), "what the input saturates shows"


@pytest.mark.parametrize(
    ("op", "inputs", "named"),
    [
        ("DynamicQuantizeLSTM", 257, False),
        ("DynamicQuantizeLSTM", 258, True),
        ("LSTM", 3000, False),
    ],
)
def test_sums_of_layers_beyond_what_f32_holds(op: str, inputs: int, named: bool) -> None:
    """Those of products that are matmuls; all code of LSTM makes one f32 of a sum in s32."""
    dynamic = op != "LSTM"
    shapes = (
        {"w": (1, inputs, 8), "r": (1, 2, 8)} if dynamic else {"w": (1, 8, inputs), "r": (1, 8, 2)}
    )
    constants = {name: np.full(shape, 127, np.int8) for name, shape in shapes.items()}
    src = TensorType(DType.F32 if dynamic else DType.U8, (1, 1, inputs))
    result = TensorType(DType.F32, (1, 1, 1, 2))
    names = (("src", "x"), ("w", "w"), ("r", "r"))
    step = Step("layer", "rnn", op, names, ("y",), {}, PrimitiveAttr())
    values = {"x": src, "y": result}
    plan = Plan("layer", "onednn-v3", ("x",), ("y",), values, constants, (step,))
    (sums,) = sums_of_plan(plan, "vnni")
    assert sums.rounded == ((0, 1) if named else ())
    assert sums.exact != named


GRU = """
plan layer target=onednn-v3
  in %x : u8[1,8,12]
  in %h : f32[1,8,4]
  const @w : s8[1,12,12] = fill(0)
  const @r : s8[1,12,4] = fill(0)
  #0 %y : f32[1,1,8,4] = rnn<GRU>(src=%x, w=@w, r=@r, initial_h=%h) rnn_data_qparams([127,128]:0) rnn_weights_qparams([400]:0) ; layer
  out %y
"""


@pytest.mark.parametrize(("row", "channels"), [(1, (1,)), (4, (0, 1, 2, 3)), (9, (1,))])
def test_a_reset_gate_reaches_all_hidden_values_of_one_step(
    row: int, channels: tuple[int, ...]
) -> None:
    """Rows of the gates are those of z, r and h, four each."""
    rng = np.random.default_rng(row)
    plan = parse_plan(GRU)
    w, r = (rng.integers(-30, 31, shape).astype(np.int8) for shape in ((1, 12, 12), (1, 12, 4)))
    w[0, row] = 40
    w[0, row, :2] = 127
    plan = replace(plan, constants={"w": w, "r": r})
    (sums,) = sums_of_plan(plan, "avx2")
    assert sums.channels == channels
    x = np.zeros((1, 8, 12), np.uint8)
    x[:, :, :2] = rng.integers(128, 256, (1, 8, 2))
    x[:, :, 2:] = rng.integers(0, 60, (1, 8, 10))
    feeds = {"x": x, "h": rng.uniform(-1, 1, (1, 8, 4)).astype(np.float32)}
    results = [
        fqfuse.InferenceSession(plan, "numpy", isa=each).run(None, feeds)[0]
        for each in ("vnni", "avx2")
    ]
    assert set(np.flatnonzero((results[0] != results[1]).any(axis=(0, 1, 2)))) <= set(channels)


def sums_of_window(
    op: str, src: np.ndarray, weights: np.ndarray, isa: str, **params: object
) -> StepSums:
    primitive = "convolution" if op == "Conv" else "deconvolution"
    plan, _, _ = one_step(primitive, op, [("src", src), ("weights", weights)], S32, params=params)
    (sums,) = sums_of_plan(plan, isa)
    return sums


def test_groups_that_another_implementation_may_take() -> None:
    """Of groups with AVX-512: which one oneDNN takes hangs on more than is known, and pairs of gemm run
    over taps.
    """
    src, weights = np.zeros((1, 2, 9, 9, 2), np.uint8), np.full((4, 1, 1, 1, 2), 127, np.int8)
    sums = sums_of_window("Conv", src, weights, "avx512_core", group=2)
    assert sums.channels == (0, 1, 2, 3)
    assert not sums.emulated
    assert sums.law not in sums.at_risk, "neighbouring channels are no pair here"
    weights[:, :, :, :, 1] = 1
    assert sums_of_window("Conv", src, weights, "avx512_core", group=2).exact
    assert sums_of_window("Conv", src, weights, "avx2", group=2).exact


@pytest.mark.parametrize(
    ("kernel", "params", "sums"),
    [
        (4, {"strides": (2,)}, "halved"),
        (7, {"dilations": (2,)}, "pairs"),  # a row whose ends do not fit its registers
        (3, {"pads": (3, 3)}, "pairs"),
        (3, {"strides": (2,), "dilations": (2,)}, "pairs"),
    ],
)
def test_which_deconvolution_of_signed_codes_is_halved(
    kernel: int, params: dict[str, object], sums: str
) -> None:
    src, weights = np.zeros((1, 16, 8), np.int8), np.full((16, 16, kernel), 126, np.int8)
    found = sums_of_window("ConvTranspose", src, weights, "avx2", **params)
    assert found.as_dict()["sums"] == sums
    assert found.emulated
    assert found.exact == (sums == "halved"), "even codes are all that halved weights need"


def test_a_deconvolution_of_which_nobody_knows_who_computes_it() -> None:
    """It must be safe by each way: even codes, and pairs that fit."""
    src = np.zeros((1, 16, 5, 5), np.int8)

    def found(largest: int, isa: str = "avx2") -> StepSums:
        weights = np.full((16, 16, 1, 1), largest, np.int8)
        return sums_of_window("ConvTranspose", src, weights, isa, strides=(3, 1))

    assert not found(126).emulated
    assert [law.halved for law in found(126).at_risk] == [False]
    assert [law.halved for law in found(63).at_risk] == [True]
    assert found(64).exact
    assert found(64).emulated


def test_the_code_for_a_vector_may_shift_weights() -> None:
    """Of one output channel by single taps: no weights of 7 bits are safe then."""
    src, weights = np.zeros((1, 9, 12), np.int8), np.full((9, 1, 1), 64, np.int8)
    for isa, exact in (("avx512_core", False), ("avx2", True)):
        sums = sums_of_window("ConvTranspose", src, weights, isa, strides=(3,), group=3)
        assert sums.exact == exact
        assert sums.emulated == exact


def test_weights_at_run_time() -> None:
    args = [("src", np.zeros((1, 4), np.uint8)), ("weights", np.zeros((4, 3), np.int8))]
    plan, _, _ = one_step("matmul", "MatMul", args, S32, constants=())
    assert sums_of_plan(plan, "avx2")[0].channels == (0, 1, 2)
    assert sums_of_plan(clipped(plan, 127), "avx2")[0].exact
    assert not sums_of_plan(clipped(plan, 129), "avx2")[0].exact


@pytest.mark.parametrize("between", [U8, S8], ids=lambda d: d.value)
def test_a_depthwise_post_op(between: DType) -> None:
    """Behind s8 codes its odd weights are halved."""
    weights, taps = np.full((4, 2, 1, 1), 10, np.int8), np.full((4, 1, 3, 3), 6, np.int8)
    taps[1, 0, 1, 1] = 7
    one = Scale((1.0,))
    op = DepthwiseConv("taps", "", 3, 1, 1, src_dtype=between, weights_scale=one, dst_scale=one)
    args = [("src", np.zeros((1, 2, 4, 4), np.uint8)), ("weights", weights)]
    plan, _, _ = one_step(
        "convolution",
        "Conv",
        args,
        U8,
        attr=PrimitiveAttr(post_ops=(op,)),
        operands={"taps": taps},
        constants=("weights", "taps"),
    )
    (sums,) = sums_of_plan(plan, "avx2")
    assert sums.channels == ((1,) if between is S8 else ())


STORE = {"scales": {"dst": Scale((0.5,))}, "zero_points": {"dst": ZeroPoint((10,))}}


@pytest.mark.parametrize(
    ("post_ops", "codes"),
    [
        ((), (0, 255)),
        ((Eltwise("relu"),), (0, 255)),
        ((Eltwise("clip", 0.0, 20.0),), (0, 50)),
        ((Eltwise("clip", 0.0, 20.0), Eltwise("round")), (0, 50)),
        ((Eltwise("clip", 0.0, 20.0), Eltwise("linear", -2.0, 1.0)), (0, 12)),
        ((Eltwise("clip", 0.0, 20.0), Eltwise("tanh")), (0, 255)),
        ((Eltwise("clip", 0.0, 6.0), Eltwise("clip", 7.0, 8.0)), (0, 24)),
        ((Eltwise("clip", 0.0, 20.0), Eltwise("linear", 3e38)), (0, 255)),  # f32 ends on the way
        ((Eltwise("clip", 0.0, 20.0), Eltwise("linear", math.inf)), (0, 255)),
    ],
)
def test_codes_that_a_step_can_store(post_ops: tuple[Eltwise, ...], codes: tuple[int, int]) -> None:
    """Each by hand: 2 * y + 10; 0 may always come from a NaN."""
    attr = PrimitiveAttr(post_ops=post_ops, **STORE)
    args = [("src", np.zeros((1, 4), np.uint8)), ("weights", np.zeros((4, 3), np.int8))]
    plan, step, _ = one_step("matmul", "MatMul", args, U8, attr=attr)
    assert codes_written(plan, step) == codes


@pytest.mark.parametrize(
    ("post_ops", "codes"),
    [
        ((Eltwise("relu"),), (0, 255)),
        ((Eltwise("clip", -50.0, 90.0), Eltwise("relu")), (0, 180)),
        ((Eltwise("clip", -50.0, 400.0), Eltwise("relu"), Eltwise("linear", 0.2)), (0, 160)),
    ],
)
def test_a_relu_keeps_what_is_above(post_ops: tuple[Eltwise, ...], codes: tuple[int, int]) -> None:
    attr = PrimitiveAttr(post_ops=post_ops, scales={"dst": Scale((0.5,))})
    args = [("src", np.zeros((1, 4), np.uint8)), ("weights", np.zeros((4, 3), np.int8))]
    plan, step, _ = one_step("matmul", "MatMul", args, U8, attr=attr)
    assert codes_written(plan, step) == codes


def test_a_scale_of_an_eltwise_multiplies_the_bounds() -> None:
    """Of `onednn-v2`, and an output scale of a softmax its shares."""
    post_ops = (Eltwise("clip", -0.5, 0.9, scale=100.0), Eltwise("relu", scale=0.5))
    args = [("src", np.zeros((1, 4), np.uint8)), ("weights", np.zeros((4, 3), np.int8))]
    attr = PrimitiveAttr(post_ops=post_ops)
    plan, step, _ = one_step("matmul", "MatMul", args, U8, attr=attr)
    assert codes_written(replace(plan, target="onednn-v2"), step) == (0, 45)
    source = [("src", np.zeros((1, 4), np.float32))]
    for output, codes in ((None, (0, 1)), (Scale((3.0,)), (0, 255))):
        attr = PrimitiveAttr(output_scales=output)
        plan, step, _ = one_step("softmax", "Softmax", source, U8, attr=attr)
        assert codes_written(replace(plan, target="onednn-v2"), step) == codes


@pytest.mark.parametrize("target", ["onednn-v2", "onednn-v3", "unified"])
def test_quantizers_of_7_bits_store_codes_of_7_bits(target: str) -> None:
    """Wherever their range lies: of an input, and behind a convolution; in every run, of numbers beyond the
    range and of none, too.
    """
    rng = np.random.default_rng(7)
    for draw in range(12):
        levels = int(rng.integers(3, 129))
        low = float(rng.choice([0.0, -(levels // 2)]))  # in steps: u8, or signed around 0
        ends = np.float32([low, low + levels - 1]) * np.float32(2.0 ** rng.integers(-8, 4))
        constants = {"low": ends[0], "high": ends[1], "scale": np.float32(0.01)}
        constants |= {
            name: rng.integers(-127, 128, (3, 3, 1, 1)).astype(np.int8) for name in ("v", "w")
        }
        weights = [node("DequantizeLinear", [name, "scale"], [f"{name}d"]) for name in ("v", "w")]
        quantized = [
            node(
                "FakeQuantize",
                [value, "low", "high", "low", "high"],
                [f"{value}q"],
                domain="org.openvinotoolkit",
                levels=levels,
            )
            for value in ("x", "h")
        ]
        first, last = node("Conv", ["xq", "vd"], ["h"]), node("Conv", ["hq", "wd"], ["y"])
        nodes = [*weights, quantized[0], first, quantized[1], last]
        proto = model(nodes, inputs={"x": [1, 3, 4, 4]}, constants=constants)
        plan = fqfuse.compile(proto, target=target)
        known = codes_of_plan(plan)
        coded = [step.output for step in plan.steps if plan.type(step.output).dtype.is_code]
        assert len(coded) == 2, draw
        assert all(known[value][0] >= 0 and known[value][1] <= 127 for value in coded), draw
        data = rng.normal(0, 3 * np.abs(ends).max(), (1, 3, 4, 4)).astype(np.float32)
        data[0, 0, 0] = [np.nan, np.inf, -np.inf, 0]
        stored = fqfuse.InferenceSession(plan, "numpy").run_steps({"x": data})
        for value in coded:
            least, largest = known[value]
            assert least <= stored[value].min() <= stored[value].max() <= largest, draw


def test_codes_that_are_joined_reach_as_far_as_the_farthest() -> None:
    """Two sources of one grid, cut at 90 and at 40: in either order."""
    for ends in ((90, 40), (40, 90)):
        net = Net()
        parameters = net.constant(np.float32(0.1)), net.constant(np.uint8(0))
        sources = []
        for end in ends:
            codes = net.op("QuantizeLinear", net.op("Abs", "x") if end == 40 else "x", *parameters)
            codes = net.op("Clip", codes, net.constant(np.uint8(0)), net.constant(np.uint8(end)))
            sources.append(net.op("DequantizeLinear", codes, *parameters))
        net.conv(net.op("Concat", *sources, axis=1), "conv", out="y", channels=16)
        found = codes_of(net.proto())
        assert found["concat"] == (0, 90)


def codes_of(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    plan = fqfuse.compile(model)
    return {step.primitive: codes_of_plan(plan).get(step.output, ()) for step in plan.steps}


def test_codes_that_are_moved_joined_or_chosen() -> None:
    """Behind a Clip of the codes at 90."""
    net = Net()
    parameters = net.constant(np.float32(0.1)), net.constant(np.uint8(0))
    codes = net.op("QuantizeLinear", "x", *parameters)
    codes = net.op("Clip", codes, net.constant(np.uint8(0)), net.constant(np.uint8(90)))
    few = net.op("DequantizeLinear", codes, *parameters)
    pooled = net.op("MaxPool", few, kernel_shape=[2, 2], strides=[2, 2])
    joined = net.op("Concat", pooled, net.op("Transpose", pooled, perm=[0, 1, 3, 2]), axis=1)
    net.conv(joined, "conv", out="y", channels=16)
    found = codes_of(net.proto())
    moved = {name: codes for name, codes in found.items() if name != "convolution"}
    assert {"pooling", "concat", "onnx.Transpose"} <= moved.keys()
    assert set(moved.values()) == {(0, 90)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-ort", "bert-nncf", "densenet121-ort", "mobilenet_v3-nncf"])
def test_no_run_stores_other_codes(name: str) -> None:
    """Of whole networks, with a source of 7 bits where they need one, on data beyond every range."""
    subject = subject_of(NETWORKS[name](), "avx2")
    plan = fixed(subject).plan
    (feeds,) = samples_for(subject).feeds
    far = {n: a * 30 if a.dtype == np.float32 else a for n, a in feeds.items()}
    known = codes_of_plan(plan)
    narrow = {value for value, codes in known.items() if codes != plan.type(value).dtype.range}
    assert narrow or not name.startswith("bert"), "attention has a source of 7 bits"
    for data in (feeds, far):
        stored = fqfuse.InferenceSession(plan, "numpy").run_steps(data)
        for value, (least, largest) in known.items():
            assert least <= stored[value].min(initial=largest)
            assert stored[value].max(initial=least) <= largest


def test_a_session_tells(digits_plan: Plan) -> None:
    session = fqfuse.InferenceSession(digits_plan, "numpy")
    assert all(sums.exact for sums in session.sums("vnni"))
    assert not all(sums.exact for sums in session.sums())
    for name in ("neon", None):
        with pytest.raises(InvalidInput, match=f"no instruction set {name!r}"):
            session.sums(name)  # type: ignore[arg-type]


@pytest.fixture
def digits_plan() -> Plan:
    folder = Path(fqfuse.__file__).parent / "models" / "data"
    return fqfuse.compile(folder / "digits_fakequantize.onnx")


def test_a_batch_that_gemm_may_take_is_proven_for_it() -> None:
    """A single column by s8, whose codes the code for a vector makes u8: small weights are no proof then."""
    weights = np.full((1, 1, 16, 1), 60, np.int8)
    args = [("src", np.zeros((2, 2, 16, 16), np.int8)), ("weights", weights)]
    operands = {"each": np.zeros((1, 2, 1, 1), np.float32)}
    attr = PrimitiveAttr(post_ops=(Binary("max", "each"),))
    plan, step, _ = one_step(
        "matmul", "MatMul", args, F32, attr=attr, operands=operands, constants=["weights", "each"]
    )
    types = {
        name: replace(type_, shape=(2, 2, 16, 1)) if name == step.output else type_
        for name, type_ in plan.values.items()
    }
    (sums,) = sums_of_plan(replace(plan, values=types), "avx512_core")
    assert not sums.emulated
    assert sums.channels == (0,)
    (sums,) = sums_of_plan(replace(plan, values=types), "avx2")
    assert sums.emulated
    assert sums.exact


COMPARED = """
plan compared target=onednn-v3
  in %x : u8[5,8]
  in %c : f32[1,COLUMNS]
  const @w : s8[8,COLUMNS] = fill(127)
  #0 %y : f32[5,COLUMNS] = matmul<MatMul>(src=%x, weights=@w) | binary(OP, %c) ; m
  out %y
"""


@pytest.mark.parametrize(
    ("algorithm", "columns", "known"),
    [("lt", 4, False), ("eq", 17, False), ("lt", 16, True), ("max", 4, True)],
)
def test_a_comparison_that_only_the_reference_makes(
    algorithm: str, columns: int, known: bool
) -> None:
    """AVX-512's code for a last vector that is not full cannot be generated."""
    plan = parse_plan(COMPARED.replace("COLUMNS", str(columns)).replace("OP", algorithm))
    (found,) = sums_of_plan(plan, "avx512_core")
    assert found.emulated == known
    assert found.saturates
    (older,) = sums_of_plan(plan, "avx2")
    assert older.emulated
