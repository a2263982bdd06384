"""Every name that people are shown is in their file: those of nodes, quantizers and values in the four
tables, and in what these say. What fqfuse adds to a model says that it was added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.attention_cases import ATTENTION
from support.body_cases import Writer, branched, looped, scanned
from support.contrib_cases import CASES as CONTRIB
from support.finding_cases import CASES as FINDINGS
from support.onnx_cases import model, node
from support.packed_models import FORMS as PACKED
from support.packed_models import Scheme, network
from support.plan_corpus import models
from support.qoperator_cases import CODES
from support.screen_networks import NETWORKS

import fqfuse
from fqfuse.models.digits import FORMS, digits_model_path
from fqfuse.plan.types import Plan
from fqfuse.report.verdict.layers import name_in_f32
from fqfuse.report.verdict.remedies import Tool

_BODIES = Path(__file__).parents[1] / "frontend" / "control_flow"
_SEPARATORS = re.compile(r"[\s'\"`,;()\[\]{}=]+")
_ADDED = "added by fqfuse"


def files() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Files of each dialect."""
    yield from ((name, make()) for name, make in NETWORKS.items())
    yield from ((form, onnx.load(digits_model_path(form))) for form in FORMS)
    for code, case in FINDINGS.items():
        yield from ((f"{code} {cured}", case(cured)) for cured in (False, True))
    for op, draw in {**CODES, **CONTRIB, **ATTENTION}.items():
        yield from ((op, draw(np.random.default_rng(seed)).model()) for seed in range(3))
    yield from ((form, network("mlp", Scheme(form))) for form in PACKED)
    yield from models()
    yield from ((path.name, onnx.load(path)) for path in sorted(_BODIES.glob("*.onnx")))
    yield from _bodies()
    yield "several of one name", _of_one_name()


def _bodies() -> Iterator[tuple[str, onnx.ModelProto]]:
    for place in ("inside", "outside"):
        layers = ["matmul", "per channel", "fake", "captured", "convolution", "nested"]
        yield f"looped, {place}", looped(Writer(layers, place, 1), 3, how="fed")
        yield f"scanned, {place}", scanned(Writer(layers, place, 1))
        yield f"branched, {place}", branched(Writer(layers, place, 1), Writer(layers, place, 2))


def _of_one_name() -> onnx.ModelProto:
    """Two quantizers of one name; codes that are called as another quantizer is; nodes without names."""
    scales = {name: np.float32(0.05) for name in ("s", "t", "u")}
    operands = ["a", "s", "zero", "weights", "t", "zero", "u", "zero"]
    return model(
        [
            node("QuantizeLinear", ["x", "s", "zero"], ["a"], name="weights"),
            node("QuantizeLinear", ["x", "t", "zero"], ["b"], name="weights"),
            node("QLinearMatMul", operands, ["c"], name=""),
            node("QLinearMatMul", ["b", "t", *operands[2:]], ["d"], name="product"),
            node("DequantizeLinear", ["c", "u", "zero"], ["e"], name=""),
            node("DequantizeLinear", ["d", "u", "zero"], ["f"], name="product"),
            node("Add", ["e", "f"], ["y"], name="product"),
        ],
        inputs={"x": [4, 4]},
        constants={**scales, "weights": np.ones((4, 4), np.uint8), "zero": np.uint8(0)},
    )


def names_of(graph: onnx.GraphProto) -> set[str]:
    """All names of nodes and values, those in bodies as well; of nodes without a name or result, the operator's."""
    tensors = (*graph.initializer, *graph.input, *graph.output)
    found = {tensor.name for tensor in tensors}
    for each in graph.node:
        found.update((each.name, *each.input, *each.output))
        if not each.name and not any(each.output):
            found.add(each.op_type)
        for attribute in each.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= names_of(inner)
    return found - {""}


def shown(plan: Plan) -> Iterator[tuple[str, str]]:
    """What is shown as a name, and where."""
    for finding in plan.findings():
        yield from (("findings", name) for name in finding["layers"])
    for step in plan.steps_table():
        yield from (("steps", name) for name in step["origin"])
    for fate in plan.fates():
        if _ADDED not in fate["form"]:
            yield "fates", fate["quantizer"]
        if fate["consumer"] != "codes":
            yield "consumers", fate["consumer"].removeprefix("output ")
    yield from (("decisions", decision["subject"]) for decision in plan.decisions())


def told(plan: Plan) -> Iterator[str]:
    """What is said in words."""
    for row in (*plan.fates(), *plan.decisions(), *plan.findings()):
        yield from (str(row.get(key, "")) for key in ("reason", "expected", "found", "hint"))


def invented(plan: Plan, there: set[str]) -> set[str]:
    """Names that the compiler made, but those that may be words."""
    made = {*plan.values, *plan.constants, *(step.name for step in plan.steps)}
    return {name for name in made - there if not name.isalpha()}


@pytest.fixture(scope="module")
def plans() -> list[tuple[str, set[str], Plan]]:
    """Each plan, those of bodies as well, with the names of the file that it is of."""
    found = []
    for name, proto in files():
        # a decision about all half floats is about the graph
        there = names_of(proto.graph) | {proto.graph.name}
        for tool in (Tool.ORT, Tool.NNCF):
            there |= {name_in_f32(each, tool) for each in there}
        wholes = [fqfuse.compile(proto)]
        if not wholes[0].quantizers:
            wholes.append(fqfuse.compile(proto, dynamic="all"))
        for whole in wholes:
            found += [(name, there, plan) for plan in (whole, *(body for _, body in whole.within))]
    return found


@pytest.mark.slow
def test_each_name_is_in_the_file(plans: list[tuple[str, set[str], Plan]]) -> None:
    for name, there, plan in plans:
        wrong = {(where, each) for where, each in shown(plan) if each and each not in there}
        assert not wrong, name
    assert sum(len(plan.quantizers) for _, _, plan in plans) > 1000


@pytest.mark.slow
def test_what_is_told_names_nothing_else(plans: list[tuple[str, set[str], Plan]]) -> None:
    for name, there, plan in plans:
        made = invented(plan, there)
        for text in told(plan):
            assert made.isdisjoint(_SEPARATORS.split(text)), f"{name}: {text}"


def test_what_fqfuse_adds_says_so() -> None:
    product = model(
        [node("MatMul", ["x", "w"], ["y"], name="product")],
        inputs={"x": [4, 8]},
        constants={"w": np.ones((8, 4), np.float32)},
    )
    forms = [fate["form"] for fate in fqfuse.compile(product, dynamic="matmul").fates()]
    assert forms
    assert all(_ADDED in form for form in forms)
