"""What a step absorbs: how far chains grow, what the decisions say where they stop, and what became
of each quantizer.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.plans import compiled, kinds, refusals, steps
from laws.runtimes import EACH_RUNTIME

from fqfuse.ir.decision import DequantizeFate, Half, QuantizeFate
from fqfuse.ir.types import DType, Quantization
from fqfuse.plan.attributes import Eltwise, Prelu
from fqfuse.runtime.session import InferenceSession


def test_a_value_read_by_two_ends_the_chain() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128), 4, scale=2**-8))
    plan = compiled(n, n.op("MaxPool", y, kernel_shape=(2, 2)), n.op("Softmax", y, axis=1))
    assert kinds(steps(plan, "convolution")[0]) == ["relu"]
    assert plan.type(steps(plan, "convolution")[0].output).dtype is DType.F32


def test_one_value_quantized_twice_differently_is_stored_in_f32() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0), 4, style="fq"))
    plan = compiled(
        n, n.conv(n.fq(y, 0.0, 4.0), 2, style="fq"), n.conv(n.fq(y, 0.0, 2.0), 2, 1, style="fq")
    )
    standalone = [fate for fate in plan.fate_records if fate.fate is QuantizeFate.STANDALONE]
    assert len(standalone) == 3
    assert sum("others read the f32 values" in fate.reason for fate in standalone) == 2


@pytest.mark.parametrize("target", ["onednn-v2", "onednn-v3"])
def test_a_quantizer_alone_names_what_ended_the_step_in_front(target: str) -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.qdq(n.input((2, 4, 4, 4)), 2**-6, 128), 4, scale=2**-8))
    plan = compiled(n, n.fq(y, 1.2, -1.1, -1.1, 1.2, name="inverted"), target=target)
    fates = [f for f in plan.fate_records if f.quantizer == "inverted" and f.half is Half.QUANTIZE]
    ended = refusals(plan, "with the parameters of the first")
    assert len(fates) == 1
    assert len(ended) == (target == "onednn-v2")
    (convolution,) = steps(plan, "convolution")
    for decision in ended:
        assert fates[0].fate is QuantizeFate.STANDALONE
        assert (
            fates[0].reason
            == f"convolution {convolution.name} in front does not take it: {decision.reason}"
        )
    assert ended or fates[0].fate is QuantizeFate.POST_OP


def test_one_value_quantized_twice_alike_is_stored_once() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), 0.0, 1.0), 4, style="fq"))
    plan = compiled(
        n, n.conv(n.fq(y, 0.0, 4.0), 2, style="fq"), n.conv(n.fq(y, 0.0, 4.0), 2, 1, style="fq")
    )
    assert [step.primitive for step in plan.steps] == [
        "reorder",
        "convolution",
        "convolution",
        "convolution",
    ]


def test_a_chain_whose_value_is_broadcast_ends() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    pooled = n.conv(n.qdq(n.op("GlobalAveragePool", x), 2**-6, 128), 4, 1, scale=2**-8)
    plan = compiled(n, n.op("Add", pooled, n.input(("N", 4, 4, 4), "z")))
    assert refusals(plan, "the chain's value is broadcast")


@pytest.mark.parametrize(
    ("sizes", "said"),
    [(("H", "W"), "the result may be larger"), (("A", "B"), ""), ((1, 1), "")],
)
def test_a_chain_ends_where_sizes_are_not_known_to_be_equal(
    sizes: tuple[str | int, str | int], said: str
) -> None:
    """A name of the chain's own sizes, or none that is larger, goes on."""
    n = Net()
    value = n.conv(n.qdq(n.input(("N", 4, "A", "B")), 2**-6, 128), 4, 1, scale=2**-8)
    plan = compiled(n, n.op("Mul", value, n.input(("N", 4, *sizes), "z")))
    found = refusals(plan, "larger than the chain")
    assert [refusal.reason.split(" than")[0] for refusal in found] == ([said] if said else [])


def test_codes_of_more_than_8_bits() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.q(n.conv(x, 4), 2**-10, 0, DType.S16))
    assert refusals(plan, "no primitive stores such codes")[0].found == "s16"
    assert any(fate.fate is QuantizeFate.FALLBACK for fate in plan.fate_records)


def test_a_quantization_along_another_axis() -> None:
    n = Net()
    x = n.qdq(n.input((2, 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.op("Relu", n.qdq(n.conv(x, 4), [0.5, 0.25], axis=0)))
    (found,) = refusals(plan, "another axis than the channels")
    assert (found.expected, found.found) == ("axis 1", "axis 0")


def test_the_chain_as_second_operand() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.op("Sub", n.op("Sigmoid", n.input(("N", 4, 4, 4), "z")), n.conv(x, 4)))
    assert "binary" not in {step.primitive for step in plan.steps}, "t - x = -x + t"


def test_bounds_and_slopes_computed_at_run_time() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    clipped = n.op("Clip", n.conv(x, 4), n.input((), "low"), "")
    sloped = n.op("PRelu", n.conv(x, 4), n.input((4, 1, 1), "slopes"))
    plan = compiled(n, clipped, sloped)
    assert refusals(plan, "a bound of the clip is computed at run time")
    assert refusals(plan, "the slopes are computed at run time")


@EACH_RUNTIME
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (1, 1, 1, 1), (6, 1, 1), (1,), ()], ids=str)
def test_a_factor_computed_at_run_time_is_a_binary_post_op(
    shape: tuple[int, ...], target: str, runtime: str
) -> None:
    """One for the tensor, or for each channel: behind the activation, which has no such scale."""
    n = Net()
    x = n.dq(n.input((2, 4, 5, 5), dtype=DType.U8, quant=Quantization.of(2**-5, 100)))
    w = n.codes((6, 4, 3, 3))
    weights = n.dq(n.graph.add_constant("w", w), Quantization((2**-7,)))
    y = n.op("Mul", n.op("Sigmoid", n.conv(x, 6, weights=weights)), n.input(shape, "factor"))
    plan = compiled(n, y, target=target)
    (step,) = steps(plan, "convolution")
    assert kinds(step) == ["logistic", "mul"]
    session = InferenceSession(plan, runtime, 1)
    rng = np.random.default_rng(1)
    for _ in range(3):
        codes = rng.integers(0, 256, (2, 4, 5, 5)).astype(np.uint8)
        factor = rng.uniform(-2, 2, shape).astype(np.float32)
        (found,) = session.run(None, {"x": codes, "factor": factor})
        padded = np.pad(codes.astype(np.int64) - 100, ((0, 0), (0, 0), (1, 1), (1, 1)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        sums = np.einsum("nchwij,ocij->nohw", taps, w.astype(np.int64))
        wanted = factor.astype(np.float64) / (1 + np.exp(-sums * 2.0**-12))
        # the library's polynomials
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


def test_slopes_along_another_axis_than_the_channels() -> None:
    n = Net()
    plan = compiled(
        n, n.op("PRelu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), np.arange(4) / 4)
    )
    assert refusals(plan, "the slopes vary along another axis")


def test_slopes_along_the_channels() -> None:
    n = Net()
    plan = compiled(
        n,
        n.op(
            "PRelu",
            n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4),
            (np.arange(4) / 4).reshape(4, 1, 1),
        ),
    )
    (op,) = plan.steps[-1].attr.post_ops
    assert isinstance(op, Prelu)
    assert op.mask == 2
    assert plan.constants[op.operand].shape == (1, 4, 1, 1)


@pytest.mark.parametrize("constant", [0.0, [1.0, 0.0, 2.0, 3.0]])
def test_a_factor_that_is_zero_is_no_scale_but_a_product(constant) -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)
    plan = compiled(n, n.op("Mul", y, np.asarray(constant, np.float32).reshape(1, -1, 1, 1)))
    assert kinds(plan.steps[-1]) == ["mul"], "rules divide by scales"


@pytest.mark.parametrize("constant", [np.nan, np.inf])
def test_a_factor_that_is_not_finite_is_no_scale(constant) -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)
    plan = compiled(n, n.op("Mul", y, np.asarray(constant, np.float32).reshape(1, -1, 1, 1)))
    assert refusals(plan, "no basic operation for Mul")
    assert "onnx.Mul" in {step.primitive for step in plan.steps} or "binary" in {
        step.primitive for step in plan.steps
    }


def test_relu_with_a_negative_factor_behind_it() -> None:
    n = Net()
    y = n.op("Mul", n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)), -0.5)
    plan = compiled(n, n.conv(n.qdq(y, 2**-6, 200), 2))
    assert kinds(plan.steps[1])[0] == "relu", "relu comes first, the factor behind it"
    assert refusals(plan, "relu(x)*c = relu(x*c) needs c > 0")


@pytest.mark.parametrize(
    ("activation", "algorithm", "alpha", "beta"),
    [
        ("LeakyRelu", "relu", 0.01, 0.0),
        ("Elu", "elu", 1.0, 0.0),
        ("Sigmoid", "logistic", 0.0, 0.0),
        ("Tanh", "tanh", 0.0, 0.0),
        ("Softplus", "soft_relu", 1.0, 0.0),
        ("HardSigmoid", "hardsigmoid", 0.2, 0.5),
        ("HardSwish", "hardswish", 1 / 6, 0.5),
        ("Swish", "swish", 1.0, 0.0),
        ("Mish", "mish", 0.0, 0.0),
        ("Gelu", "gelu_erf", 0.0, 0.0),
        ("Abs", "abs", 0.0, 0.0),
        ("Exp", "exp", 0.0, 0.0),
        ("Log", "log", 0.0, 0.0),
        ("Sqrt", "sqrt", 0.0, 0.0),
        ("Round", "round", 0.0, 0.0),
    ],
)
def test_activations_are_post_ops(
    activation: str, algorithm: str, alpha: float, beta: float
) -> None:
    n = Net()
    plan = compiled(
        n,
        n.conv(
            n.qdq(n.op(activation, n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)), 2**-6, 3), 2
        ),
    )
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution", "convolution"]
    (op,) = plan.steps[1].attr.post_ops
    assert isinstance(op, Eltwise)
    assert (op.algorithm, op.alpha, op.beta) == (
        algorithm,
        pytest.approx(alpha),
        pytest.approx(beta),
    )


def test_gelu_in_its_tanh_form() -> None:
    n = Net()
    plan = compiled(
        n, n.op("Gelu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), approximate="tanh")
    )
    assert kinds(plan.steps[-1]) == ["gelu_tanh"]


# -- fates -----------------------------------------------------------------------------------------


def test_the_fates_of_a_plain_layer() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3)
    bias = n.dq(
        n.graph.add_constant("b", np.arange(2, dtype=np.int32)),
        Quantization((2**-14,)),
        name="bias",
    )
    y = n.qdq(n.op("Relu", n.conv(x, 2, bias=bias, name="conv")), 2**-6, 0, name="out")
    plan = compiled(n, n.conv(y, 2, name="next"))
    told = {
        (fate.quantizer, fate.half, fate.consumer): (fate.fate.value, fate.step)
        for fate in plan.fate_records
    }
    assert told[("out", Half.QUANTIZE, "")] == ("dst_scale", 1)
    assert told[("out", Half.DEQUANTIZE, "next")] == ("source_scale", 2)
    assert told[("bias", Half.DEQUANTIZE, "conv")] == ("bias", None)
    assert told[("bias", Half.QUANTIZE, "")] == ("constant", None)
    assert told[("q1", Half.QUANTIZE, "")] == ("standalone", 0)
    assert told[("q1", Half.DEQUANTIZE, "conv")] == ("source_scale", 1)


def test_a_fake_quantize_that_stays_whole_says_so() -> None:
    n = Net()
    inverted = np.where(np.arange(12) % 2, -1, 1).reshape(3, 4, 1)  # half of the ranges
    y = n.fq(n.input(("N", 3, 4, 4)), -inverted, inverted, levels=300, name="inverted")
    plan = compiled(n, n.op("Relu", y))
    quantize, *dequantize = [fate for fate in plan.fate_records if fate.quantizer == "inverted"]
    assert quantize.fate is QuantizeFate.FALLBACK
    assert [fate.fate for fate in dequantize] == [DequantizeFate.FALLBACK]
    assert quantize.step == 0


def test_weights_that_cannot_be_split_are_computed_once() -> None:
    n = Net()
    w = n.fq(n.const(n.rng.standard_normal((2, 3, 1, 1))), -1.0, 1.0, levels=300, name="many")
    plan = compiled(n, n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 2, 1, weights=w))
    assert "onnx.FakeQuantize" not in {step.primitive for step in plan.steps}
    assert [fate.fate for fate in plan.fate_records if fate.quantizer == "many"] == [
        QuantizeFate.CONSTANT,
        DequantizeFate.CONSTANT,
    ]


@pytest.mark.parametrize("op", ["Sqrt", "Log"])
def test_relu_guards_a_root_from_rounding_errors(op: str) -> None:
    """Codes 0..255 of -4.1..1: the code of 0 decodes as 205*0.02f - 4.1f, which is 4e-9; other
    scales round below 0, to NaN.
    """
    n = Net()
    y = n.fq(n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), -4.1, 1.0)
    plan = compiled(n, n.op(op, n.op("Relu", y)))
    assert kinds(plan.steps[-1])[-2:] == ["relu", op.lower()]
