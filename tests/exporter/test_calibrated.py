"""`fqfuse.export(..., calibrate=...)`: the quantizers that ONNX Runtime wants are there, with the ranges
that the data gives, and nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.onnx_cases import model, node, optimized_operators, random, run_ort

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.exporter import FORMS

SHAPE = (1, 8, 12, 12)
SAMPLES = [{"x": random(SHAPE, seed)} for seed in range(4)]
Nodes = list[onnx.NodeProto]


class Writer:
    """Collects nodes and constants of a network as NNCF writes it."""

    def __init__(self) -> None:
        self.nodes: Nodes = []
        self.constants: dict[str, Any] = {"z": np.uint8(128), "wz": np.int8(0)}

    def quantized(self, value: str, scale: Any, name: str) -> str:
        """A quantizer, u8 about 128; with several scales along the channels."""
        self.constants[f"{name}.s"] = np.asarray(scale, np.float32)
        zero = "z"
        if np.ndim(scale):
            zero = f"{name}.z"
            self.constants[zero] = np.full(len(scale), 128, np.uint8)
        self.nodes += [
            node("QuantizeLinear", [value, f"{name}.s", zero], [f"{name}.q"], axis=1),
            node("DequantizeLinear", [f"{name}.q", f"{name}.s", zero], [name], axis=1),
        ]
        return name

    def convolved(self, value: str, name: str, group: int = 1) -> str:
        """A convolution of 8 channels by codes, 3x3."""
        rng = np.random.default_rng(len(self.nodes))
        codes = rng.integers(-127, 128, (8, 8 // group, 3, 3)).astype(np.int8)
        scale = np.float32(0.004 * group**0.5)
        self.constants |= {
            f"{name}.w": codes,
            f"{name}.ws": scale,
            f"{name}.b": random([8], 9, 0.1),
        }
        self.nodes += [
            node("DequantizeLinear", [f"{name}.w", f"{name}.ws", "wz"], [f"{name}.wd"]),
            node(
                "Conv",
                [value, f"{name}.wd", f"{name}.b"],
                [name],
                name=name,
                pads=[1] * 4,
                group=group,
            ),
        ]
        return name

    def op(self, op: str, values: list[str], name: str) -> str:
        self.nodes.append(node(op, values, [name], name=name))
        return name

    def proto(self, *outputs: str) -> onnx.ModelProto:
        return model(
            self.nodes, inputs={"x": list(SHAPE)}, outputs=outputs, constants=self.constants
        )


def swish() -> onnx.ModelProto:
    """Convolutions in front of swish, no quantizer between."""
    net = Writer()
    value = net.quantized("x", 0.03, "a")
    for index in range(3):
        real = net.convolved(value, f"c{index}")
        gate = net.op("Sigmoid", [real], f"g{index}")
        value = net.quantized(net.op("Mul", [real, gate], f"m{index}"), 0.02, f"d{index}")
    return net.proto(net.convolved(value, "y"))


def hard_swish() -> onnx.ModelProto:
    """The same with hard swish, and one scale for each channel in front of a depthwise convolution."""
    net = Writer()
    real = net.convolved(net.quantized("x", 0.03, "a"), "c")
    bent = net.op("HardSwish", [real], "h")
    value = net.quantized(bent, np.linspace(0.1, 0.12, 8), "d")
    real = net.convolved(value, "e", group=8)
    return net.proto(net.quantized(net.op("Relu", [real], "r"), 0.2, "y"))


def read_twice() -> onnx.ModelProto:
    """A convolution that a quantizer reads, an addition in f32, and the caller."""
    net = Writer()
    real = net.convolved(net.quantized("x", 0.03, "a"), "c")
    other = net.convolved(
        net.quantized(real, 0.02, "d"), "e"
    )  # a range that the other readers leave
    return net.proto(net.op("Add", [real, net.quantized(other, 0.05, "f")], "s"), "c")


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    found.__name__: found for found in (swish, hard_swish, read_twice)
}


@pytest.mark.each_case
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_is_one_of_codes(name: str, form: str, tmp_path: Path) -> None:
    proto = NETWORKS[name]()
    plain = fqfuse.export(proto, tmp_path / "plain.onnx", to=form)
    exported = fqfuse.export(proto, tmp_path / "new.onnx", to=form, calibrate=SAMPLES)
    count = sum(n.op_type == "Conv" for n in proto.graph.node)
    assert plain.products
    assert plain.added == ()
    assert exported.products == ()
    found = optimized_operators(exported.model, tmp_path)
    assert found["QLinearConv"] == count
    assert not {"Conv", "FusedConv", "Swish", "QuickGelu"} & found.keys()
    for feeds in (*SAMPLES, {"x": random(SHAPE, 77)}):
        wanted, exact = run_ort(proto, feeds), run_ort(exported.model, feeds)
        ours = fqfuse.InferenceSession(fqfuse.compile(exported.model), "numpy").run(None, feeds)
        for before, after, mine, fast in zip(
            wanted, exact, ours, run_ort(exported.model, feeds, optimized=True), strict=True
        ):
            # 8 bits over the range of normal numbers are 40 dB and more, once for each quantizer
            assert decibels(before, after) > 28
            assert decibels(after, mine) > 38  # codes next to ties
            assert decibels(after, fast) > 38


def decibels(wanted: np.ndarray, found: np.ndarray) -> float:
    noise = np.square(wanted - found).sum()
    return 200.0 if noise == 0 else float(10 * np.log10(np.square(wanted).sum() / noise))


@pytest.mark.parametrize("form", FORMS)
def test_the_ranges_are_those_of_the_data(form: str, tmp_path: Path) -> None:
    """By ONNX Runtime: of the first convolution, over all samples."""
    proto = swish()
    proto.graph.output.append(helper.make_tensor_value_info("c0", onnx.TensorProto.FLOAT, None))
    values = [run_ort(proto, feeds)[1] for feeds in SAMPLES]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    exported = fqfuse.export(swish(), tmp_path / "new.onnx", to=form, calibrate=iter(SAMPLES)).model
    scales = [
        numpy_helper.to_array(tensor)
        for tensor in exported.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and not tensor.dims
    ]
    assert any(abs(float(scale) * 255 - (high - low)) < 1e-3 * (high - low) for scale in scales)


def test_one_sample_may_be_given_alone(tmp_path: Path) -> None:
    once = fqfuse.export(swish(), tmp_path / "a.onnx", calibrate=SAMPLES[0])
    listed = fqfuse.export(swish(), tmp_path / "b.onnx", calibrate=SAMPLES[:1])
    assert once.model == listed.model
    assert once.added == ("c0", "c1", "c2", "y")


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([], "there is no sample"),
        ([{"z": SAMPLES[0]["x"]}], "z"),
        ([{"x": np.zeros((1, 8, 12), np.float32)}], "x"),
        ([None], "a sample is of type NoneType"),
        ([{"x": np.full(SHAPE, np.nan, np.float32)}], "a sample holds NaN"),
    ],
)
def test_samples_that_do_not_fit_are_refused(samples: list[Any], said: str, tmp_path: Path) -> None:
    net = Writer()
    proto = net.proto(net.convolved(net.quantized("x", 0.03, "a"), "y"))
    with pytest.raises(InvalidInput, match=said):
        fqfuse.export(proto, tmp_path / "new.onnx", calibrate=samples)
    assert not (tmp_path / "new.onnx").exists()


def test_a_range_that_has_no_end_is_refused(tmp_path: Path) -> None:
    net = Writer()
    result = net.convolved(net.quantized("x", 0.03, "a"), "y")
    net.constants["y.b"][3] = np.inf
    with pytest.raises(InvalidInput, match="infinite or NaN"):
        fqfuse.export(net.proto(result), tmp_path / "new.onnx", calibrate=SAMPLES)


def test_one_scale_has_the_range_of_all_channels(tmp_path: Path) -> None:
    """What the range of its own channel cut off is kept, up to the widest one."""
    net = Writer()
    value = net.quantized("x", [0.01, 0.02, 0.04, 0.01, 0.01, 0.01, 0.01, 0.03], "d")
    proto = net.proto(net.convolved(value, "y", group=8))
    exported = fqfuse.export(proto, tmp_path / "new.onnx", calibrate=SAMPLES)
    assert len(exported.added) == 2  # a new one behind the convolution, and this
    feeds = {"x": np.full(SHAPE, 9.0, np.float32)}
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    for tensor in wide.graph.initializer:
        if tensor.name == "d.s":
            tensor.CopyFrom(numpy_helper.from_array(np.full(8, 0.04, np.float32), "d.s"))
    found, wanted = run_ort(exported.model, feeds)[0], run_ort(wide, feeds)[0]
    # the last quantizer, by the samples, cuts off what is far beyond them
    inside = np.abs(wanted) < 2
    assert inside.any()
    np.testing.assert_allclose(found[inside], wanted[inside], atol=0.1)
