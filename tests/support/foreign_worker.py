"""Loads plans of one foreign node with hostile attributes, in a process of its own: it may crash,
hang, or ask for too much.

    python foreign_worker.py FIRST COUNT

The lines of standard output are those of `plan_worker.py`. Seed n is an operator of the newest
opset, number n modulo their count; the first round of seeds gives each of them one hostile
attribute, later ones several, and every third puts the node into a branch of an If.
"""

from __future__ import annotations

import random
import resource
import sys
import traceback
import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, helper
from support.plan_worker import ADDRESSES

from fqfuse.errors import PlanError
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.file import _content, read_plan
from fqfuse.plan.types import Plan, Step

INTEGERS = (0, -1, -2, 1, 2, 3, 7, 1 << 16, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -1.0, 1e38, float("nan"), float("inf"))
TEXTS = (
    b"",
    b"\xff",
    b"a" * 300,
    b"ij,jk->ik",
    b"...",
    b"[",
    b"(a+)+$",
    b"SAME_UPPER",
    b"linear",
    b"Tanh",
)
KINDS = {
    DType.F32: "float",
    DType.S64: "int64",
    DType.S32: "int32",
    DType.BOOL: "bool",
    DType.STRING: "string",
    DType.U8: "uint8",
}


@cache
def schemas() -> list[onnx.defs.OpSchema]:
    """The newest form of each operator, in the order of their names."""
    found = [schema for schema in onnx.defs.get_all_schemas() if not schema.deprecated]
    return sorted(found, key=lambda schema: (schema.domain, schema.name))


def hostile_plan(seed: int) -> bytes:
    """The sealed file of a plan that nobody looked at."""
    rng = random.Random(seed)  # noqa: S311
    turn, number = divmod(seed, len(schemas()))
    schema = schemas()[number]
    dtypes: dict[str, DType] = {}
    node = NodeProto(op_type=schema.name, domain=schema.domain, name="hostile")
    count = rng.randint(schema.min_input, max(schema.min_input, min(schema.max_input, 5)))
    node.input.extend(f"i{k}" for k in range(count))
    node.output.extend(
        f"o{k}"
        for k in range(
            rng.randint(
                max(schema.min_output, 1), max(schema.min_output, min(schema.max_output, 3), 1)
            )
        )
    )
    hostile = [name for name in schema.attributes if schema.attributes[name].type.name != "GRAPH"]
    struck = set(rng.sample(hostile, min(len(hostile), 1 + turn)))
    for name, declared in schema.attributes.items():
        if name in struck or declared.required:
            node.attribute.append(
                _attribute(
                    rng,
                    name,
                    declared.type.name if rng.random() < 0.9 else "INTS",
                    hostile=name in struck,
                )
            )
    values = {
        own: _value(rng, _dtype(rng, dtypes, schema.inputs, k)) for k, own in enumerate(node.input)
    }
    outputs = {
        own: TensorType(_dtype(rng, dtypes, schema.outputs, k), None)
        for k, own in enumerate(node.output)
    }
    if turn % 3 == 2:
        branch = helper.make_graph(
            [node], "branch", [], [onnx.ValueInfoProto(name=name) for name in node.output]
        )
        values["chosen"] = np.asarray(True)
        reads = list(node.input)
        node = helper.make_node(
            "If",
            ["chosen"],
            [f"{name}_out" for name in outputs],
            then_branch=branch,
            else_branch=branch,
        )
        node.metadata_props.add(key="fqfuse.inputs", value="\n".join(["chosen", *reads]))
        node.metadata_props.add(
            key="fqfuse.opsets", value=f"{schema.domain} {schema.since_version}"
        )
        values = {"chosen": values.pop("chosen"), **values}
        outputs = {f"{name}_out": type_ for name, type_ in outputs.items()}
    return _sealed(rng, node, 21 if node.op_type == "If" else schema.since_version, values, outputs)


def _attribute(rng: random.Random, name: str, kind: str, *, hostile: bool) -> AttributeProto:
    drawn: dict[str, tuple[Any, ...]] = {"INT": INTEGERS, "FLOAT": FLOATS, "STRING": TEXTS}
    found = AttributeProto(name=name, type=AttributeProto.AttributeType.Value(kind))
    if kind in drawn:
        setattr(found, kind[0].lower(), rng.choice(drawn[kind]) if hostile else drawn[kind][3])
    elif kind.removesuffix("S") in drawn:
        pool = drawn[kind.removesuffix("S")]
        getattr(found, kind.lower()).extend(
            [rng.choice(pool) for _ in range(rng.choice((0, 1, 2, 4)))] if hostile else pool[3:5]
        )
    elif kind == "TENSOR":
        found.t.CopyFrom(onnx.numpy_helper.from_array(np.array([rng.choice(INTEGERS)], np.int64)))
    elif kind == "GRAPH":
        value = helper.make_tensor_value_info("inside", 1, [1])
        found.g.CopyFrom(
            helper.make_graph(
                [helper.make_node("Identity", ["inside"], ["same"])],
                "body",
                [value],
                [onnx.ValueInfoProto(name="same")],
            )
        )
    return found


def _dtype(rng: random.Random, chosen: dict[str, DType], parameters: Any, index: int) -> DType:
    """One that the schema allows at a place, the same wherever the schema says so."""
    if not parameters:
        return DType.F32
    parameter = parameters[min(index, len(parameters) - 1)]
    allowed = [dtype for dtype, word in KINDS.items() if f"tensor({word})" in parameter.types] or [
        DType.F32
    ]
    return chosen.setdefault(parameter.type_str, rng.choice(allowed))


def _value(rng: random.Random, dtype: DType) -> np.ndarray:
    shape = [rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
    if dtype is DType.STRING:
        return np.full(shape, "a", object)
    numbers = np.array(
        [
            rng.choice(INTEGERS if rng.random() < 0.2 else (1, 2, 3))
            for _ in range(int(np.prod(shape)))
        ],
        np.int64,
    )
    return numbers.reshape(shape).astype(dtype.numpy)


def _sealed(
    rng: random.Random,
    node: NodeProto,
    opset: int,
    values: dict[str, np.ndarray],
    outputs: dict[str, TensorType],
) -> bytes:
    held = {name for name in values if rng.random() < 0.5}
    dtypes = {dtype.numpy: dtype for dtype in KINDS}
    types = {
        name: TensorType(dtypes[a.dtype], None if rng.random() < 0.3 else a.shape)
        for name, a in values.items()
        if name not in held
    }
    params = {
        "op_type": node.op_type,
        "domain": node.domain,
        "opset": opset,
        "proto": node.SerializeToString(deterministic=True),
    }
    args = tuple((f"x_{k}", name) for k, name in enumerate(values))
    step = Step("step", f"onnx.{node.op_type}", "Onnx", args, tuple(outputs), params)
    constants = {name: values[name] for name in values if name in held}
    plan = Plan(
        "hostile",
        "onednn-v3",
        tuple(types),
        tuple(outputs),
        {**types, **outputs},
        constants,
        (step,),
    )
    return b"".join(_content(plan, None))


def main(first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        print(seed, flush=True)
        op = schemas()[seed % len(schemas())].name
        data = hostile_plan(seed)
        try:
            read_plan(data)
            kind, message = "loaded", op
        except PlanError as error:
            kind, message = "refused", f"{op}: {error.what[:200]}"
        except BaseException as error:  # noqa: BLE001  every one but PlanError is what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind, message = (
                "FAILURE",
                f"{op}: {type(error).__name__}: {str(error)[:300]} ({last.filename.rpartition('/')[2]}:{last.lineno})",
            )
        print(seed, kind, message.replace("\n", " | "), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
