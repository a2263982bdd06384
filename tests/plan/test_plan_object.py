"""A plan as an object of Python: short to print, safe to copy and to pickle, with methods that tell of
it.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from types import MappingProxyType

import pytest
from support.plan_corpus import every_plan

import fqfuse
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr, Scale
from fqfuse.plan.file import plan_bytes
from fqfuse.plan.types import Plan, Step
from fqfuse.runtime.placement import Placement


@pytest.fixture(scope="module")
def plan() -> Plan:
    return fqfuse.compile(digits_model_path("qdq"))


@pytest.mark.slow
def test_every_plan_survives_pickle_and_copies() -> None:
    for name, plan in every_plan():
        for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan), copy.copy(plan)):  # noqa: S301 - our own bytes
            assert again == plan, name
            assert plan_bytes(again) == plan_bytes(plan), name


def test_a_copy_is_as_frozen_as_the_plan(plan: Plan) -> None:
    again = copy.deepcopy(plan)
    assert isinstance(again.values, MappingProxyType)
    with pytest.raises(FrozenInstanceError):
        again.name = "other"


def test_a_deep_copy_shares_no_constants(plan: Plan) -> None:
    name = next(iter(plan.constants))
    assert copy.deepcopy(plan).constants[name] is not plan.constants[name]
    assert copy.copy(plan).constants[name] is plan.constants[name]


def test_it_prints_in_one_line_whatever_the_model_is_called(plan: Plan) -> None:
    text = repr(plan)
    assert "12 steps, 11 in int8; 26 quantizers" in text
    hostile = replace(plan, name="\x1b[31m\n\u202e" + "x" * 10_000)
    assert repr(hostile).isprintable()
    assert len(repr(hostile)) < 300


def test_steps_and_their_places_are_one_short_line_each() -> None:
    many = PrimitiveAttr({"weights": Scale((0.5,) * 4096, 2)}, post_ops=(Eltwise("relu"),) * 9)
    step = Step("x\n" * 200, "matmul", "MatMul", (("src", "x"),), ("y",), {}, many, ("n",) * 500)
    placed = Placement(step, "onednn", "brgemm " * 100)
    for text in (repr(step), repr(placed), repr(replace(placed, reason="why " * 99))):
        assert "\n" not in text
        assert len(text) < 300
    assert repr(Step("a", "reorder", "Identity", (), ("y",))) == "Step 'a': reorder<Identity>"


def test_its_methods_are_the_functions_of_the_package(plan: Plan) -> None:
    assert plan.findings() == fqfuse.findings(plan)
    assert [row["index"] for row in plan.steps_table()] == list(range(len(plan.steps)))
    assert len(plan.fates()) == len(plan.fate_records)
    assert len(plan.decisions()) == len(plan.decision_records)
    assert plan._repr_html_().startswith("<p>")
