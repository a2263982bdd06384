"""Layouts that ONNX Runtime chooses for a CPU, read back to plain ones: files that it writes with all its
optimizations, and blocks of another CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contrib_cases import chosen, floats
from support.judge import optimized_model
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.frontend.operators import channel_blocks
from fqfuse.ir.decision import Outcome

NCHWC = "com.microsoft.nchwc"


def agree(proto, feeds, atol=1e-4):
    (wanted,) = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend, threads=1).run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=atol, err_msg=backend)
    return plan


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_with_channels_last(group) -> None:
    """ONNX Runtime's tool for diffusion models writes them, its CPUs have no kernel: the judge is Conv."""
    weights, bias, x = random([6, 4 // group, 3, 2]), random([6]), random([2, 4, 7, 5])
    attributes = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "group": group}
    plain = model(
        [node("Conv", ["x", "w", "b"], ["y"], **attributes)],
        inputs={"x": [2, 4, 7, 5]},
        constants={"w": weights, "b": bias},
    )
    (wanted,) = run_ort(plain, {"x": x})
    made = node("NhwcConv", ["x", "w", "b"], ["y"], domain="com.microsoft", **attributes)
    proto = model(
        [made],
        inputs={"x": [2, 7, 5, 4]},
        constants={"w": weights.transpose(0, 2, 3, 1), "b": bias},
        domains={"com.microsoft": 1},
    )
    plan = fqfuse.compile(proto)
    assert "convolution" in {step.primitive for step in plan.steps}
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(plan, backend, threads=1)
        (found,) = session.run(None, {"x": x.transpose(0, 2, 3, 1)})
        np.testing.assert_allclose(found.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-5)


def network(rng):
    """A residual block between a stem and a head, with drawn channels, activations and pools."""
    wide, middle = (int(8 * rng.integers(2, 7)) for _ in range(2))
    group = chosen(rng, 1, middle, 2 if middle % 32 == 0 else 1)
    constants = {
        "w0": floats(rng, wide, chosen(rng, 3, 16, 24), 3, 3) / 5,
        "w1": floats(rng, middle, wide, 1, 1) / 5,
        "w2": floats(rng, middle, middle // group, 3, 3) / 5,
        "w3": floats(rng, wide, middle, 1, 1) / 5,
        **{f"b{i}": floats(rng, size) for i, size in enumerate((wide, middle, middle, wide))},
    }

    def conv(index, x, y, **attributes):
        return node("Conv", [x, f"w{index}", f"b{index}"], [y], **attributes)

    pool = chosen(rng, "MaxPool", "AveragePool", "Resize", "Relu")
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]} if "Pool" in pool else {}
    inputs = ["r0", "", "scales"] if pool == "Resize" else ["r0"]
    constants["scales"] = np.float32([1, 1, 2, 2])
    if pool == "Resize":
        attributes = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
    nodes = [
        conv(0, "x", "c0", strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node(pool, inputs, ["p0"], **attributes),
        conv(1, "p0", "c1"),
        node(chosen(rng, "Relu", "Sigmoid", "Tanh"), ["c1"], ["r1"]),
        conv(2, "r1", "c2", pads=[1, 1, 1, 1], group=group),
        node("Relu", ["c2"], ["r2"]),
        conv(3, "r2", "c3"),
        node("Add", ["c3", "p0"], ["s"]),
        node("Relu", ["s"], ["t"]),
        node("Concat", ["t", "p0"], ["u"], axis=1),
        node(chosen(rng, "GlobalAveragePool", "GlobalMaxPool"), ["u"], ["y"]),
    ]
    shape = [1, constants["w0"].shape[1], 13, 11]
    return model(nodes, inputs={"x": shape}, constants=constants, opset=17), floats(rng, *shape)


@pytest.fixture(scope="module")
def _as_pretended(tmp_path_factory) -> Iterator[None]:
    """What the system says of the CPU is what ONNX Runtime sees of it: `make test-without-vnni` hides instructions
    from the latter alone.
    """
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PRETEND_CPU") == "AVX2":
            told = tmp_path_factory.mktemp("cpu") / "cpuinfo"
            told.write_text("flags\t\t: fpu avx avx2\n", encoding="utf-8")
            patch.setattr(channel_blocks, "_CPUINFO", told)
        yield


@pytest.mark.usefixtures("_as_pretended")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_networks_in_blocks_of_channels(tmp_path_factory, seed) -> None:
    proto, x = network(np.random.default_rng(seed))
    blocked = optimized_model(proto, tmp_path_factory.mktemp("blocks"))
    assert NCHWC in {n.domain for n in blocked.graph.node}
    plan = agree(blocked, {"x": x})
    assert "Onnx" not in {step.op for step in plan.steps}


@pytest.mark.parametrize("padded", [False, True])
def test_a_max_pool_of_codes_with_channels_last(padded) -> None:
    attributes = {"pads": [1, 0, 1, 1]} if padded else {"strides": [2, 1]}
    made = node("NhwcMaxPool", ["x"], domain="com.microsoft", kernel_shape=[3, 2], **attributes)
    types = {"x": onnx.TensorProto.UINT8}
    proto = model([made], inputs={"x": [2, 7, 6, 5]}, types=types, domains={"com.microsoft": 1})
    agree(proto, {"x": np.random.default_rng(0).integers(0, 256, (2, 7, 6, 5)).astype(np.uint8)}, 0)


def test_a_padding_that_onnxruntime_has_otherwise_is_refused() -> None:
    attributes = {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "dilations": [2, 1]}
    made = node("NhwcMaxPool", ["x"], domain="com.microsoft", **attributes)
    proto = model([made], inputs={"x": [2, 7, 6, 5]}, domains={"com.microsoft": 1})
    with pytest.raises(fqfuse.UnsupportedOp, match="auto_pad of NhwcMaxPool is SAME_UPPER"):
        fqfuse.compile(proto)


# -- blocks of another CPU -------------------------------------------------------------------------


def blocks(weights, block, *, both):
    """ONNX's weights [O, I, kh, kw] as ONNX Runtime lays them for blocks of channels."""
    o, i, *kernel = weights.shape
    if both:
        parts = weights.reshape(o // block, block, i // block, block, *kernel)
        return parts.transpose(0, 2, 4, 5, 3, 1).reshape(weights.shape)
    parts = weights.reshape(o // block, block, i, *kernel)
    return parts.transpose(0, 2, 3, 4, 1).reshape(weights.shape)


def two_convolutions(block, channels, shown):
    """Two convolutions in blocks, of which the first `shown` channels are given out, and the same in plain layout."""
    first, second = random([channels, 3, 3, 3]), random([channels, channels, 1, 1], 1)
    nodes = [
        node("Conv", ["x", "w0"], ["c"], name="c", domain=NCHWC),
        node("Conv", ["c", "w1"], ["d"], name="d", domain=NCHWC, activation="Relu"),
        node("ReorderOutput", ["d"], ["y"], name="out", domain=NCHWC, channels=shown),
    ]
    constants = {"w0": blocks(first, block, both=False), "w1": blocks(second, block, both=True)}
    plain = [
        node("Conv", ["x", "w0"], ["c"]),
        node("Conv", ["c", "w1"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    inputs = {"x": [1, 3, 6, 6]}
    return (
        model(nodes, inputs=inputs, constants=constants, domains={NCHWC: 1}),
        model(plain, inputs=inputs, constants={"w0": first, "w1": second[:shown]}),
    )


@pytest.mark.parametrize(("block", "channels", "shown"), [(8, 24, 24), (16, 32, 20)])
def test_blocks_are_what_numbers_of_channels_prove(block, channels, shown, monkeypatch) -> None:
    monkeypatch.setattr(channel_blocks, "_CPUINFO", channel_blocks.Path("/nowhere"))
    blocked, plain = two_convolutions(block, channels, shown)
    x = random([1, 3, 6, 6], 2)
    plan = fqfuse.compile(blocked)
    (found,) = fqfuse.InferenceSession(plan, "numpy").run(None, {"x": x})
    np.testing.assert_allclose(found, run_ort(plain, {"x": x})[0], rtol=1e-4, atol=1e-4)
    (told,) = (d for d in plan.decision_records if d.rule == "import_channel_blocks")
    assert told.outcome is Outcome.FIRED
    assert told.reason == f"a block of channels has {block}, as the file shows"


@pytest.mark.parametrize(("flags", "block"), [("fpu avx avx512f", 16), ("fpu avx avx2", 8)])
def test_blocks_that_nothing_proves_are_those_of_this_cpu(
    flags, block, monkeypatch, tmp_path
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="utf-8")
    monkeypatch.setattr(channel_blocks, "_CPUINFO", tmp_path / "cpuinfo")
    blocked, plain = two_convolutions(block, 32, 32)
    x = random([1, 3, 6, 6], 2)
    (found,) = fqfuse.InferenceSession(fqfuse.compile(blocked), "numpy").run(None, {"x": x})
    np.testing.assert_allclose(found, run_ort(plain, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_blocks_that_nothing_tells_are_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(channel_blocks, "_CPUINFO", tmp_path / "nothing")
    with pytest.raises(fqfuse.UnsupportedOp, match="does not say how many channels a block"):
        fqfuse.compile(two_convolutions(8, 32, 32)[0])


def test_blocks_of_two_sizes_are_refused() -> None:
    proto = two_convolutions(8, 24, 24)[0]
    other = two_convolutions(16, 32, 20)[0].graph
    for made in other.node:
        made.name += "2"
        made.input[:] = [name if name == "x" else f"{name}2" for name in made.input]
        made.output[:] = [f"{name}2" for name in made.output]
    for tensor in other.initializer:
        tensor.name += "2"
    proto.graph.node.extend(other.node)
    proto.graph.initializer.extend(other.initializer)
    proto.graph.output.append(onnx.ValueInfoProto(name="y2"))
    with pytest.raises(fqfuse.UnsupportedOp, match="blocks of 8 and of 16 channels in one model"):
        fqfuse.compile(proto)


@pytest.mark.parametrize("between", [[], ["Relu"], ["Relu", "Sigmoid"]])
def test_blocks_that_are_read_as_plain_channels_are_refused(between) -> None:
    """As the tools for transformers write them behind ONNX Runtime's own optimizations."""
    nodes, value = [node("ReorderInput", ["x"], ["b"], domain=NCHWC)], "b"
    for op in between:
        nodes.append(node(op, [value], [f"{value}.{op}"]))
        value = f"{value}.{op}"
    blocks = [*nodes, node("ReorderOutput", [value], ["y"], domain=NCHWC, channels=16)]
    plain = [*nodes, node("Transpose", [value], ["y"], perm=[0, 2, 3, 1])]
    told = {"inputs": {"x": [1, 16, 4, 4]}, "domains": {NCHWC: 1}}
    fqfuse.compile(model(blocks, **told))
    with pytest.raises(
        fqfuse.InvalidModel, match=r"Transpose reads .*, whose channels lie in blocks"
    ):
        fqfuse.compile(model(plain, **told))
