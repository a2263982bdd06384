"""A plan for programs: plain dictionaries and lists, ready for `json.dumps`. docs/contributing/json-schema.md
describes every key.

The same plan gives the same document, order included. JSON has no infinities: they are the strings
`inf` and `-inf`, and NaN is `nan`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, cast

import numpy as np

from ..ir.constants import for_types
from ..ir.decision import Alternative, Fate, QuantizeFate
from ..ir.text_write import Writer
from ..ir.types import Quantization, TensorType
from ..masks import mask_text
from ..plan.attributes import SCALES, DepthwiseConv, PostOp, Prelu, Scale, ZeroPoint
from ..plan.open_sizes import NO_SIZES
from ..plan.types import Plan, Step, runs_in_int8
from ..plan.words import order_of
from .approximations import Saving
from .fates import fates_by_quantizer
from .notation import rounded, weights_by_step
from .summary import summary_of
from .tables import cost_of
from .verdict.estimate import Costs, costs_of
from .verdict.findings import Verdict, as_data, verdict_of
from .verdict.machine import Machine, this_machine
from .verdict.work import parts_of

INSPECT_SCHEMA = "fqfuse.inspect/1"
"""Name and version of the document; a new version where a key changes its meaning or goes away, not
where one is added.
"""

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


_WORST_FIRST = (
    QuantizeFate.FALLBACK,
    QuantizeFate.STANDALONE,
    QuantizeFate.POST_OP,
    QuantizeFate.SOURCE,
    QuantizeFate.DST_SCALE,
    QuantizeFate.CONSTANT,
    QuantizeFate.REDUNDANT,
)


def plan_json(
    plan: Plan,
    machine: Machine | None = None,
    sizes: Mapping[str, int] = NO_SIZES,
    savings: Sequence[Saving] = (),
) -> dict[str, Json]:
    """The document of `fqfuse inspect --json`: schema, summary, verdict, findings, approximations, steps,
    fates, decisions.

    Args:
        plan: any plan.
        machine: what times are estimated for; None: this one.
        sizes: of what the model leaves open, for the verdict; others are guessed.
        savings: what approximations would save, where that is known.
    """
    machine = machine or this_machine()
    verdict = verdict_of(plan, machine, sizes)
    weights = weights_by_step(plan)
    return {
        "schema": INSPECT_SCHEMA,
        "summary": summary_json(plan),
        "verdict": verdict_json(verdict)
        | {
            "bytes": verdict.estimate.bytes,
            "machine": verdict.machine.description,
            "guessed_sizes": dict(verdict.guessed),
            "without_vnni": list(verdict.without_vnni),
            "loops_taken_once": list(verdict.loops),
        },
        "findings": [cast("Json", as_data(finding)) for finding in verdict.findings],
        "approximations": list(map(record, savings)),
        "steps": [
            _step(plan, index, step, verdict.costs, weights.get(index))
            for index, step in enumerate(plan.steps)
        ],
        "constants": [_constant(plan, name) for name in sorted(plan.constants)],
        "fates": fates_json(plan),
        "decisions": list(map(record, plan.decision_records)),
    }


def summary_json(plan: Plan) -> dict[str, Json]:
    """The totals, which `compile --json` and `demo --json` carry, too."""
    summary = summary_of(plan)
    return {
        "model": summary.model,
        "target": summary.target,
        "inputs": [{"name": name, "type": _type(plan.type(name))} for name in plan.inputs],
        "outputs": [{"name": name, "type": _type(plan.type(name))} for name in plan.outputs],
        "steps": summary.steps,
        "int8_steps": summary.int8,
        "primitives": {
            name: {"steps": kind.steps, "int8": kind.int8} for name, kind in summary.kinds.items()
        },
        "post_ops": dict(summary.post_ops),
        "attributes": dict(summary.attributes),
        "constants": {"count": summary.constants, "bytes": summary.constant_bytes},
        "quantizers": summary.quantizers,
        "forms": dict(summary.forms),
        "dynamic": summary.dynamic,
        "settled": summary.settled,
        "fused": summary.fused,
        "fates": {"quantize": dict(summary.quantize), "dequantize": dict(summary.dequantize)},
        "decisions": {"fired": summary.fired, "refused": summary.refused},
        "options": {name: _json(value) for name, value in sorted(plan.options.items())},
    }


def fates_json(plan: Plan) -> list[Json]:
    """Where each quantizer went, which `demo --json` carries, too."""
    return [
        {
            "quantizer": name,
            "quantize": _quantize(encoded),
            "dequantize": [{"consumer": fate.consumer, **_fate(fate)} for fate in decoded],
        }
        for name, (encoded, decoded) in fates_by_quantizer(plan).items()
    ]


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """What a plan does in which numbers, and takes, which `diff --json` carries, too."""
    return {
        "macs": verdict.shares.macs,
        "int8_macs": verdict.shares.int8_macs,
        "f32_code_macs": verdict.shares.f32_code_macs,
        "bytes_between": verdict.shares.between,
        "f32_bytes_between": verdict.shares.f32_between,
        "ms": rounded(verdict.estimate.ms),
    }


def _step(
    plan: Plan, index: int, step: Step, costs: Costs, weights: Quantization | None
) -> dict[str, Json]:
    parts = parts_of(costs.plan, costs.plan.steps[index]).parts
    bodies = step.bodies.plans if step.bodies is not None else ()
    operands = [_type(plan.type(value)) for value in step.attr.operands]
    return {
        "index": index,
        "primitive": step.primitive,
        "op": step.op,
        "params": {name: _json(value) for name, value in sorted(step.params.items())},
        "roles": [role for role, _ in step.args],
        "inputs": list(step.inputs),
        "outputs": list(step.outputs),
        "types": {
            "inputs": [
                _type(_argument_type(plan, step, role, value, weights)) for role, value in step.args
            ]
            + operands,
            "outputs": [_type(plan.type(value)) if value else "" for value in step.outputs],
        },
        "int8": runs_in_int8(plan, step),
        "scales": {name: _masked(step, name, scale) for name, scale in step.attr.scales.items()},
        "zero_points": {
            name: _masked(step, name, zero) for name, zero in step.attr.zero_points.items()
        },
        **{name: _alone(step, name) for name in SCALES},
        "post_ops": [_post_op(op) for op in step.attr.post_ops],
        "origin": list(step.origin),
        "bodies": [
            _body(body, costs_of(part.plan, costs.machine)) | {"times": part.times}
            for body, part in zip(bodies, parts, strict=True)
        ],
        **cast("dict[str, Json]", cost_of(costs, index)),
    }


def _body(plan: Plan, costs: Costs) -> dict[str, Json]:
    """A plan in a body of a step, with what its steps cost in one trip."""
    weights = weights_by_step(plan)
    return {
        "name": plan.name,
        "inputs": [{"name": name, "type": _type(plan.type(name))} for name in plan.inputs],
        "outputs": [{"name": name, "type": _type(plan.type(name))} for name in plan.outputs],
        "steps": [
            _step(plan, index, step, costs, weights.get(index))
            for index, step in enumerate(plan.steps)
        ],
        "constants": [_constant(plan, name) for name in sorted(plan.constants)],
        "fates": fates_json(plan),
        "decisions": list(map(record, plan.decision_records)),
    }


def _masked(step: Step, role: str, held: Scale | ZeroPoint) -> dict[str, Json]:
    """Scales or zero points of an argument, the mask by its name, too."""
    return record(held) | {"mask_name": mask_text(held.mask, order_of(step, role))}


def _alone(step: Step, name: str) -> dict[str, Json] | None:
    """Scales that belong to no argument, likewise."""
    held = getattr(step.attr, name)
    role = "dst" if name == "output_scales" else ""
    return None if held is None else _masked(step, role, held)


def _constant(plan: Plan, name: str) -> dict[str, Json]:
    data = for_types(plan.constants, name)
    single = data is not None and data.size == 1 and data.dtype.kind in "fiub"
    value = _number(float(data.reshape(-1)[0])) if data is not None and single else None
    return {"name": name, "type": _type(plan.type(name)), "value": value}


def _type(type_: TensorType) -> str:
    """A type in the grammar of docs/contributing/text-form.md."""
    return Writer().type(type_)


def _argument_type(
    plan: Plan, step: Step, role: str, value: str, weights: Quantization | None
) -> TensorType:
    """The type of an argument as the step reads it: the codes of constant weights get the scale that
    the model has for them, which the step's attributes may not hold.
    """
    type_ = plan.type(value)
    if type_.quant is not None or not type_.dtype.is_integer:
        return type_
    scale = weights.scale if role == "weights" and weights is not None else ()
    if role != "weights" and role in step.attr.scales:
        scale = step.attr.scales[role].values
    if len(scale) <= 1:
        return type_.with_quant(Quantization.of(scale)) if scale else type_
    axis = _channel_axis(step, type_, len(scale))
    return type_ if axis is None else type_.with_quant(Quantization.of(scale, axis=axis))


def _channel_axis(step: Step, type_: TensorType, channels: int) -> int | None:
    """The axis of the weights that the scales run along (output channels), or None where no single
    one holds them all.
    """
    axis = {"convolution": 0, "deconvolution": 1, "matmul": -1}.get(step.primitive)
    if axis is None or type_.shape is None or type_.shape[axis] != channels:
        return None  # a deconvolution with groups: output channels lie on two axes
    return axis % len(type_.shape)


def _post_op(op: PostOp) -> dict[str, Json]:
    no_bias: dict[str, Json] = (
        {"bias": None} if isinstance(op, DepthwiseConv) and not op.bias else {}
    )
    return {"kind": op.kind} | record(op) | no_bias


def record(value: Any) -> dict[str, Json]:
    """A dataclass by its fields; a home that is not legal costs nothing that counts."""
    found = {item.name: _json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Scale | ZeroPoint | Prelu):
        found["mask_name"] = mask_text(value.mask)
    illegal = isinstance(value, Alternative) and value.why_not
    return found | {"cost": None} if illegal else found


def plain(document: Mapping[str, object]) -> dict[str, Json]:
    """A document of Python's own data, with numbers as they are written in JSON here."""
    return {name: _json(value) for name, value in document.items()}


def _json(value: object) -> Json:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, float):
        return _number(value)
    if is_dataclass(value) and not isinstance(value, TensorType | Quantization):
        return record(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Enum):
        return str(value.value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _number(value: float) -> float | str:
    """The shortest decimal that reads back to the same f32, where the value is one."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def _quantize(fates: Sequence[Fate]) -> dict[str, Json] | None:
    """The quantize half's fate; where it was moved into several branches, the most costly one, and
    the others in its reason.
    """
    if not fates:
        return None
    ordered = sorted(fates, key=lambda fate: _WORST_FIRST.index(QuantizeFate(fate.fate.value)))
    worst = _fate(ordered[0])
    others = [
        f"{fate.fate.value}{'' if fate.step is None else f' at step {fate.step}'}: {fate.reason}"
        for fate in ordered[1:]
    ]
    return worst | {"reason": "; also ".join([ordered[0].reason, *others])}


def _fate(fate: Fate) -> dict[str, Json]:
    return {"fate": fate.fate.value, "step": fate.step, "reason": fate.reason}
