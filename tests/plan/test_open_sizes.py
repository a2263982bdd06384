"""Sizes that a model leaves open: which are usual, and which shapes and other plans state."""

from __future__ import annotations

import onnx
import pytest
from support.onnx_cases import model, node
from support.plan_text import parse_plan

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.plan.open_sizes import sizes_for, sizes_like, sizes_of_shapes, symbols_of
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan


def plan_of(*nodes: object, **inputs: list[object]) -> Plan:
    return fqfuse.compile(model(nodes or [node("Relu", ["x"])], inputs=inputs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (["N", "C", "H", "W"], {"N": 1, "C": 3, "H": 224, "W": 224}),
        (["batch", 3, "height", "width"], {"batch": 1, "height": 224, "width": 224}),
        (["batch", "length"], {"batch": 1, "length": 128}),
        (["batch", 80, "frames"], {"batch": 1, "frames": 128}),
        (["count"], {"count": 1}),
        (["N", "N"], {"N": 1}),
        ([2, 3], {}),
    ],
)
def test_the_guess_follows_the_role(shape: list[object], sizes: dict[str, int]) -> None:
    assert sizes_for(plan_of(x=shape)) == sizes


@pytest.mark.parametrize(
    ("shape", "metadata", "sizes"),
    [
        (["N", 3, "H", "W"], {"imgsz": "[640, 480]", "batch": "1"}, {"N": 1, "H": 640, "W": 480}),
        (["N", 3, "H", "W"], {"imgsz": "[320]"}, {"N": 1, "H": 320, "W": 320}),
        (["N", 3, "H", "W"], {"imgsz": "320", "batch": "8"}, {"N": 8, "H": 320, "W": 320}),
        (["N", "H", "W", 3], {"imgsz": "[640, 480]"}, {"N": 1, "H": 640, "W": 480}),
        (["N", 3, 64, "W"], {"imgsz": "[640, 480]"}, {"N": 1, "W": 480}),
        (["N", "L"], {"imgsz": "[640, 480]", "batch": "4"}, {"N": 1, "L": 128}),
        (["N", 3, "H", "W"], {"imgsz": "[1, 2, 3]", "batch": "x"}, {"N": 1, "H": 224, "W": 224}),
        (["N", 3, "H", "W"], {"imgsz": "[-640, 640]"}, {"N": 1, "H": 224, "W": 224}),
    ],
)
def test_metadata_go_before_the_role(
    shape: list[object], metadata: dict[str, str], sizes: dict[str, int]
) -> None:
    proto = model([node("Relu", ["x"])], inputs={"x": shape})
    onnx.helper.set_model_props(proto, metadata)
    plan = fqfuse.compile(proto)
    assert sizes_for(plan) == sizes
    assert sizes_for(parse_plan(print_plan(plan))) == sizes
    first = next(iter(sizes))
    assert sizes_for(plan, {first: 7})[first] == 7


def test_what_is_given_counts() -> None:
    assert sizes_for(plan_of(x=["N", "L"]), {"L": 7}) == {"N": 1, "L": 7}


def test_a_first_dimension_anywhere_is_a_batch() -> None:
    plan = plan_of(node("Add", ["x", "z"]), x=[3, "N"], z=["N", 3, 1])
    assert sizes_for(plan) == {"N": 1}


def test_a_guess_that_does_not_fit_the_model_is_1() -> None:
    plan = plan_of(node("Add", ["x", "z"]), x=["N", "A"], z=["N", 1, "B", "C"])
    assert symbols_of(plan) == ("N", "A", "B", "C")
    assert sizes_for(plan) == {"N": 1, "A": 1, "B": 1, "C": 1}


def test_an_input_of_unknown_rank_has_no_guess() -> None:
    proto = model([node("Relu", ["x"])])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert sizes_for(fqfuse.compile(proto)) == {}


def test_sizes_of_another_plan() -> None:
    assert sizes_like(plan_of(x=["N", "L"]), plan_of(x=[2, "M"])) == {"N": 2}


def test_sizes_of_shapes() -> None:
    plan = plan_of(x=["N", 3])
    assert sizes_of_shapes(plan, {"x": (5, 3)}) == {"N": 5}
    with pytest.raises(InvalidInput, match="no input 'z'"):
        sizes_of_shapes(plan, {"z": (5, 3)})
    with pytest.raises(InvalidInput, match="no shape of x"):
        sizes_of_shapes(plan, {"x": (5, 4)})
