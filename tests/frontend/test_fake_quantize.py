"""FakeQuantize nodes, as NNCF and OpenVINO write them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from support.onnx_cases import compare, model, node, ops, random, run_import

import fqfuse
from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import Quantizer

DOMAIN = "org.openvinotoolkit"
ROLES = ("il", "ih", "ol", "oh")
X = random([2, 3, 4, 5], scale=2)


def fake_quantize(
    ranges, *, domain=DOMAIN, imported=True, inputs=None, types=None, attributes=None, **more
):
    """x -> FakeQuantize -> y; ranges are four arrays."""
    constants = dict(zip(ROLES, (np.asarray(r, np.float32) for r in ranges), strict=True))
    nodes = [
        node(
            "FakeQuantize",
            ["x", *ROLES],
            name="fq",
            domain=domain,
            **({"levels": 256} if attributes is None else attributes),
        )
    ]
    domains = {domain: 1} if domain and imported else None
    return model(nodes, constants=constants, domains=domains, inputs=inputs, types=types, **more)


def specification(x, il, ih, ol, oh, levels):
    """OpenVINO's FakeQuantize-1, element by element in Python's own floats; Python rounds ties to
    even.
    """
    result = np.empty_like(x)
    ranges = [np.broadcast_to(np.asarray(r, np.float32), x.shape) for r in (il, ih, ol, oh)]
    for index in np.ndindex(*x.shape):
        v, low, high, out_low, out_high = float(x[index]), *(float(r[index]) for r in ranges)
        if v <= min(low, high):
            result[index] = out_low
        elif v > max(low, high):
            result[index] = out_high
        else:
            result[index] = (
                round((v - low) / (high - low) * (levels - 1)) / (levels - 1) * (out_high - out_low)
                + out_low
            )
    return result


CHANNELS = np.float32([1.0, 1.5, 2.0]).reshape(3, 1, 1)
CASES = {
    "per tensor": ((-2.0, 1.984375, -2.0, 1.984375), 256),
    "unsigned": ((0.0, 2.55, 0.0, 2.55), 256),
    "per channel": ((-CHANNELS, CHANNELS, -CHANNELS, CHANNELS), 255),
    "channels of full rank": (
        (-CHANNELS[None], CHANNELS[None], -CHANNELS[None], CHANNELS[None]),
        255,
    ),
    "other output range": ((-2.0, 2.0, 0.0, 255.0), 256),
    "four bits": ((-1.0, 1.0, -1.0, 1.0), 16),
    "inverted": ((2.0, -2.0, -1.0, 1.0), 256),
    "threshold": ((0.25, 0.25, -1.0, 1.0), 2),
    "mixed shapes": ((np.float32(-2), CHANNELS, -CHANNELS, np.float32(2)), 256),
}


@pytest.mark.parametrize("domain", [DOMAIN, ""])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_the_specification(case, domain):
    ranges, levels = CASES[case]
    proto = fake_quantize(ranges, domain=domain, attributes={"levels": levels})
    graph = compare(proto, {"x": X}, expected=[specification(X, *ranges, levels)])
    assert ops(graph) == ["FakeQuantize"]
    assert graph.quantizers == {"fq": Quantizer("fq", "FakeQuantize", "x")}
    assert graph.node("fq").quantizer == ("fq",)
    assert graph.node("fq").attrs["levels"] == levels


def test_the_domain_need_not_be_imported():
    graph_from_onnx(fake_quantize(CASES["per tensor"][0], imported=False))


def test_ranges_may_be_computed_from_constants():
    ranges = [
        node("Constant", [], [f"{role}64"], value_float=value)
        for role, value in zip(ROLES, (-1.0, 1.0, -1.0, 1.0), strict=True)
    ]
    ranges += [node("Identity", [f"{role}64"], [role]) for role in ROLES]
    proto = model(
        [*ranges, node("FakeQuantize", ["x", *ROLES], domain=DOMAIN, levels=256)],
        domains={DOMAIN: 1},
    )
    _, (found,) = run_import(proto, {"x": X})
    np.testing.assert_array_equal(found, specification(X, -1, 1, -1, 1, 256))


@pytest.mark.parametrize(
    ("kind", "carried"), [(TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)]
)
def test_other_float_types_go_through_f32(kind, carried):
    x = X.astype(carried)
    proto = fake_quantize(CASES["per tensor"][0], types={"x": kind})
    expected = specification(x.astype(np.float32), *CASES["per tensor"][0], 256).astype(carried)
    graph = compare(proto, {"x": x}, expected=[expected])
    assert ops(graph)[-2:] == ["FakeQuantize", "Cast"]


def test_two_without_a_name_are_told_apart_by_their_outputs():
    constants = {role: np.float32(v) for role, v in zip(ROLES, (-1, 1, -1, 1), strict=True)}
    nodes = [
        node("FakeQuantize", ["x", *ROLES], ["a"], domain=DOMAIN, levels=256),
        node("FakeQuantize", ["a", *ROLES], ["y"], domain=DOMAIN, levels=16),
    ]
    graph = graph_from_onnx(model(nodes, constants=constants, domains={DOMAIN: 1}))
    assert list(graph.quantizers) == ["a", "y"]


def test_pdpd_broadcasting_where_it_is_numpys():
    proto = fake_quantize(
        CASES["per tensor"][0], attributes={"levels": 256, "auto_broadcast": "pdpd"}
    )
    assert graph_from_onnx(proto).node("fq").attrs["auto_broadcast"] == "numpy"
    proto = fake_quantize(
        CASES["per channel"][0], attributes={"levels": 256, "auto_broadcast": "pdpd"}
    )
    with pytest.raises(UnsupportedOp, match="pdpd"):
        graph_from_onnx(proto)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_ranges_that_are_fed_mean_the_same(backend):
    ranges, levels = CASES["per tensor"]
    fed = fake_quantize(ranges, inputs={"x": [2, 3, 4, 5], "low": [], "high": [1]})
    fed.graph.node[0].input[1:3] = ["low", "high"]
    feeds = {"x": X, "low": np.float32(ranges[0]), "high": np.float32([ranges[1]])}
    (found,) = fqfuse.InferenceSession(fqfuse.compile(fed), backend).run(None, feeds)
    np.testing.assert_allclose(found, specification(X, *ranges, levels), rtol=1e-6)


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, "needs the attribute levels"),
        ({"levels": 1}, "an integer >= 2, and has 1"),
        ({"levels": 2.5}, "an integer >= 2, and has 2.5"),
        ({"levels": 256, "auto_broadcast": "what"}, "auto_broadcast of FakeQuantize is 'what'"),
        ({"levels": 256, "narrow": 1}, "no attribute 'narrow'"),
    ],
)
def test_attributes_are_checked(attributes, text):
    with pytest.raises(InvalidModel, match=text):
        graph_from_onnx(fake_quantize(CASES["per tensor"][0], attributes=attributes))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_ranges_must_be_finite(value):
    with pytest.raises(
        InvalidModel, match="input_high of FakeQuantize, 'ih', is not finite everywhere"
    ):
        graph_from_onnx(fake_quantize((-1.0, value, -1.0, 1.0)))


def test_ranges_must_broadcast_to_the_data():
    with pytest.raises(InvalidModel, match=r"input_low: .* do not broadcast"):
        graph_from_onnx(fake_quantize((np.zeros(7), 1.0, -1.0, 1.0)))
    with pytest.raises(InvalidModel, match="input_low"):
        graph_from_onnx(fake_quantize((np.zeros((2, 2, 3, 4, 5)), 1.0, -1.0, 1.0)))


def test_inputs_are_counted():
    proto = fake_quantize(CASES["per tensor"][0])
    del proto.graph.node[0].input[4]
    with pytest.raises(InvalidModel, match="needs 5 inputs, and has 4"):
        graph_from_onnx(proto)


def test_integers_are_refused():
    with pytest.raises(InvalidModel, match="works on floating-point values, and 'x' is s64"):
        graph_from_onnx(fake_quantize(CASES["per tensor"][0], types={"x": TensorProto.INT64}))
