"""The plan file holds all of a plan, gives the same bytes each time, and is ONNX that other tools
open.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.plan_strategies import foreign_params, full_plan, plans, tiny_plan
from support.text_strategies import exactly

from fqfuse.errors import PlanError
from fqfuse.ir.constants import for_types
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.file import plan_bytes, read_plan, save_plan
from fqfuse.plan.nodes import node_of, step_of
from fqfuse.plan.seal import is_plan
from fqfuse.plan.shapes import step_types
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, Step

TESTS = Path(__file__).parents[1]


@given(plans())
def test_a_plan_survives_the_file(plan):
    data = plan_bytes(plan)
    again = read_plan(data)
    assert again == plan
    assert plan_bytes(again) == data
    assert print_plan(again) == print_plan(plan)
    for old, new in zip(plan.steps, again.steps, strict=True):
        assert {k: exactly(v) for k, v in old.params.items()} == {
            k: exactly(v) for k, v in new.params.items()
        }
    onnx.checker.check_model(onnx.load_model_from_string(data))


def test_everything_survives_the_file(tmp_path):
    plan = full_plan()
    path = tmp_path / "plan.onnx"
    save_plan(plan, path)
    assert read_plan(path) == plan
    assert read_plan(str(path)) == plan
    assert read_plan(path.read_bytes()) == plan
    save_plan(plan, path)
    assert path.read_bytes() == plan_bytes(plan)
    assert all(not data.flags.writeable for data in read_plan(path).constants.values())


def test_the_order_of_mappings_does_not_change_the_bytes():
    plan = full_plan()
    turned = {
        key: dict(reversed(list(getattr(plan, key).items())))
        for key in ("values", "constants", "options")
    }
    assert plan_bytes(Plan(**{**vars(plan), **turned})) == plan_bytes(plan)


def test_two_processes_with_other_hash_seeds_write_the_same_bytes():
    code = "import hashlib, sys; sys.path.insert(0, sys.argv[1]); from support.plan_strategies import full_plan\n"
    code += "from fqfuse.plan.file import plan_bytes; print(hashlib.sha256(plan_bytes(full_plan())).hexdigest())"
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", code, str(TESTS)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        assert run.stdout.strip() == hashlib.sha256(plan_bytes(full_plan())).hexdigest()


def test_the_file_is_a_valid_onnx_model():
    model = onnx.load_model_from_string(plan_bytes(full_plan()))
    onnx.checker.check_model(model)
    assert {o.domain: o.version for o in model.opset_import} == {"": 26, "fqfuse": 1}
    nodes = {node.name: node for node in model.graph.node}
    assert [(n.domain, n.op_type) for n in model.graph.node] == [
        ("fqfuse", "Reorder"),
        ("fqfuse", "Convolution"),
        ("fqfuse", "Convolution"),
        ("fqfuse", "Concat"),
        ("fqfuse", "Pooling"),
        ("", "Flatten"),
        ("fqfuse", "Matmul"),
        ("", "Clip"),
        ("", "Cast"),
        ("fqfuse", "Binary"),
        ("", "NonZero"),
        ("", "NonZero"),
        ("", "Identity"),
    ]
    told = {a.name: helper.get_attribute_value(a) for a in nodes["depthwise"].attribute}
    assert told["op"] == b"Conv"
    assert told["roles"] == [b"src", b"weights"]
    assert told["kernel_shape"] == [3, 3]
    assert told["group"] == 4
    assert told["scales.weights"] == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert told["scales.weights.mask"] == 3
    assert told["zero_points.src"] == [3]
    assert told["post_ops"] == [
        b"sum(%2,scale=0.1,zero_point=7,dtype=u8)",
        b"eltwise(clip,beta=6)",
        b"prelu(%3)",
    ]
    assert list(nodes["depthwise"].input) == ["xq", "w2", "c1", "slope"]
    assert list(nodes["clip"].input) == ["y", "", "six"]
    assert helper.get_attribute_value(nodes["cast"].attribute[-1]) == onnx.TensorProto.FLOAT16
    weights = next(t for t in model.graph.initializer if t.name == "w1")
    assert weights.data_type == onnx.TensorProto.INT8
    np.testing.assert_array_equal(numpy_helper.to_array(weights), full_plan().constants["w1"])
    codes = next(v for v in model.graph.value_info if v.name == "c1")
    assert {p.key: p.value for p in codes.metadata_props} == {
        "fqfuse.type": "u8[N,4,6,6]{s=0.1,z=7}"
    }


def test_standard_steps_are_standard_nodes_that_other_tools_can_run():
    x = TensorType(DType.F32, (2, 6))
    steps = (
        Step(
            "split", "onnx.Split", "Split", (("x", "x"),), ("a", "b"), {"axis": 1, "num_outputs": 2}
        ),
        Step(
            "pad",
            "onnx.Pad",
            "Pad",
            (("x", "a"), ("pads", "pads"), ("axes", "axes")),
            ("p",),
            {"mode": "constant"},
        ),
        Step("join", "onnx.Concat", "Concat", (("x_0", "p"), ("x_1", "b")), ("j",), {"axis": 1}),
        Step("turn", "onnx.Transpose", "Transpose", (("x", "j"),), ("t",), {"perm": ()}),
        Step("shape", "onnx.Shape", "Shape", (("x", "t"),), ("s",), {"start": 0, "end": None}),
        Step(
            "fill",
            "onnx.ConstantOfShape",
            "ConstantOfShape",
            (("shape", "s"),),
            ("y",),
            {"value": 2.5, "dtype": DType.F32},
        ),
    )
    values = {
        "x": x,
        "a": TensorType(DType.F32, (2, 3)),
        "b": TensorType(DType.F32, (2, 3)),
        "p": TensorType(DType.F32, (2, 5)),
        "j": TensorType(DType.F32, (2, 8)),
        "t": TensorType(DType.F32, (8, 2)),
        "s": TensorType(DType.S64, (2,)),
        "y": TensorType(DType.F32, None),
    }
    constants = {"pads": np.array([1, 1]), "axes": np.array([1])}
    plan = Plan("moves", "onnx-v3", ("x",), ("y", "t"), values, constants, steps)
    plan = Plan(
        **{**vars(plan), "target": "onednn-v3", "values": {**values, "y": _type_of_filled(plan)}}
    )
    data = plan_bytes(plan)
    assert read_plan(data) == plan
    model = onnx.load_model_from_string(data)
    assert all(node.domain == "" for node in model.graph.node)
    feed = np.arange(12, dtype=np.float32).reshape(2, 6)
    filled, turned = ReferenceEvaluator(model).run(None, {"x": feed})
    np.testing.assert_array_equal(
        turned, np.concatenate([np.pad(feed[:, :3], ((0, 0), (1, 1))), feed[:, 3:]], 1).T
    )
    np.testing.assert_array_equal(filled, np.full((8, 2), 2.5, np.float32))


def _type_of_filled(plan: Plan) -> TensorType:
    """What the op table says of a filled tensor whose shape is computed."""
    data_of = partial(for_types, plan.constants)
    return step_types(plan.steps[-1], plan.type, data_of, exact=True)[0]


@pytest.mark.parametrize(
    ("primitive", "op", "params"),
    [
        ("onnx.Relu", "Relu", {"invented": 1}),
        (
            "onnx.Dequantize",
            "Dequantize",
            {"lo": (1, (2.5, "x")), "none": None, "empty": (), "flag": True, "raw": b"\0\xff" * 99},
        ),
        (
            "a strange one",
            "Relu",
            {
                "op": "x",
                "roles": 3,
                "scales.src": (),
                "param.op": 1.5,
                "double": 0.1,
                "many": (0.1, 0.2),
                "big": 1 << 80,
            },
        ),
        (
            "eltwise",
            "Relu",
            {"algorithm": "relu", "alpha": float("nan"), "beta": float("inf"), "primitive": "y"},
        ),
    ],
)
def test_whatever_a_step_holds_survives_its_node(primitive, op, params):
    step = Step(
        "odd", primitive, op, (("x", "x"), ("", "y")), ("", "z"), params, PrimitiveAttr(), ("o",)
    )
    node, _ = node_of(step)
    again = step_of(type(node).FromString(node.SerializeToString()))
    assert {k: exactly(v) for k, v in again.params.items()} == {
        k: exactly(v) for k, v in params.items()
    }
    assert (again.name, again.primitive, again.op, again.args, again.outputs, again.origin) == (
        "odd",
        primitive,
        op,
        step.args,
        step.outputs,
        ("o",),
    )


@pytest.mark.parametrize(
    ("args", "params", "kept"),
    [
        ((("x_0", "a"),), foreign_params(), True),
        ((("x_0", "a"), ("x_1", "outer")), foreign_params(metadata="before\nouter"), True),
        ((("x_0", "a"), ("x_1", "renamed")), foreign_params(metadata="before\nouter"), False),
        ((("x_0", "a"), ("x_1", "more")), foreign_params(), False),
        ((("y", "a"),), foreign_params(), False),
        ((("x_0", "a"),), {**foreign_params(), "proto": b"\xff"}, False),
        ((("x_0", "a"),), {**foreign_params(), "op_type": "Other"}, False),
        ((("x_0", "a"),), {**foreign_params(), "extra": 1}, False),
    ],
)
def test_a_foreign_op_is_the_users_own_node_where_nothing_is_lost(args, params, kept):
    step = Step("mine", "onnx.NonZero", "Onnx", args, ("b",), params, PrimitiveAttr(), ("o", "p"))
    node, version = node_of(step)
    assert (node.op_type, node.domain) == (("NonZero", "") if kept else ("Onnx", "fqfuse"))
    assert version == (13 if kept else 1)
    assert step_of(type(node).FromString(node.SerializeToString())) == step
    if kept:
        assert list(node.input) == ["a"]
        assert list(node.output) == ["b"]


def test_an_unsound_plan_is_not_written():
    plan = tiny_plan()
    broken = Plan(**{**vars(plan), "outputs": ("z",)})
    with pytest.raises(PlanError, match="the plan returns %z, which nothing writes"):
        plan_bytes(broken)


def test_what_onnx_cannot_hold_is_refused():
    plan = tiny_plan()
    strings = np.empty(1, object)
    strings[:] = [b"bytes"]
    with pytest.raises(PlanError, match="holds objects that are no strings"):
        plan_bytes(Plan(**{**vars(plan), "constants": {**plan.constants, "s": strings}}))
    with pytest.raises(PlanError, match="cannot be written as ONNX"):
        plan_bytes(Plan(**{**vars(plan), "name": "\ud800"}))
    huge = np.broadcast_to(np.float32(0), (1 << 15, 1 << 15))  # 4 GiB, of which 4 bytes exist
    with pytest.raises(PlanError, match="one ONNX file holds 2 GiB"):
        plan_bytes(Plan(**{**vars(plan), "constants": {**plan.constants, "huge": huge}}))


def test_a_plan_is_told_from_a_model(tmp_path):
    data = plan_bytes(tiny_plan())
    assert is_plan(data)
    assert is_plan(data[:40])  # cut off, and still a plan: the reader will say so
    path = tmp_path / "p.onnx"
    path.write_bytes(data)
    assert is_plan(path)
    model = onnx.load_model_from_string(data)
    for domain in ("", "ai.fqfuse", "fqfuse2"):
        model.domain = domain
        assert not is_plan(model.SerializeToString())
    for other in (
        b"",
        b"\x08",
        b"PK\x03\x04" + bytes(99),
        b"\xff" * 99,
        b"not a model at all",
        b"\x22\x06fqfus",
    ):
        assert not is_plan(other)
