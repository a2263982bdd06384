"""The text form of plans: `parse_plan(print_plan(plan)) == plan`. docs/contributing/text-form.md has the
grammar.

One line a step, for instance::

    #3 %y : u8[N,8,8,8]{s=0.1,z=0} = convolution<Conv>(src=%x, weights=@w){pads=[1,1,1,1]}
    scales(dst=0.1, src=0.02) | eltwise(relu) ; conv3
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..ir.constants import as_held
from ..ir.ops import OPS
from ..ir.ops.spec import Attr, Required
from ..ir.text_print import DataForm, Rendered, explanation_lines, tail_text
from ..ir.text_write import Writer, name_text
from .types import Plan, Step, runs_in_int8
from .words import factors_text, order_of, post_op_text


def print_plan(plan: Plan, *, data: DataForm = "full", explain: bool = True) -> str:
    """The text form of a plan.

    Args:
        plan: any plan, also one that breaks the rules.
        data: `full`: `parse_plan` gives an equal plan; `digest`: for people and golden tests.
        explain: with fates and decisions.
    """
    return str(render_plan(plan, data=data, explain=explain))


def render_plan(plan: Plan, *, data: DataForm = "full", explain: bool = True) -> Rendered:
    """The text form as lines, with the places of steps and values."""
    writer = Writer(display=data == "digest")
    out = Rendered()
    _render(writer, out, plan, explain=explain)
    for line in writer.data_lines():
        out.add(line)
    return out


def _render(writer: Writer, out: Rendered, plan: Plan, *, explain: bool) -> None:
    out.add(_header(plan))
    for value in plan.inputs:
        out.add(f"  in {_bound(writer, plan, value)}", values=[value])
    for value in _constants(plan):
        array = plan.constants[value]
        out.add(
            f"  const @{name_text(value)} : {writer.type(plan.type(value))} = {writer.constant(array)}",
            values=[value],
        )
    for value in _others(plan):
        out.add(f"  value {_bound(writer, plan, value)}", values=[value])
    for index, step in enumerate(plan.steps):
        out.add(
            _step_line(writer, plan, index, step), node=step.name, values=filter(None, step.outputs)
        )
    out.add(("  out " + ", ".join(writer.value(v, plan.constants) for v in plan.outputs)).rstrip())
    for key in sorted(plan.options):
        out.add(f"  option {name_text(key)} = {writer.attr(plan.options[key])}")
    for line in explanation_lines(
        writer,
        plan.quantizers,
        plan.decision_records if explain else (),
        plan.fate_records if explain else (),
    ):
        out.add(line)
    for index, step in enumerate(plan.steps):
        if step.bodies is None:
            continue
        for body in step.bodies.plans:
            # names within it may be those of the plan around it, whose places are looked for
            inner = Rendered()
            _render(writer, inner, body, explain=explain)
            out.add(f"  body #{index} {step.bodies.states} {step.bodies.scanned}")
            for line in (*inner.lines, "end"):
                out.add(f"  {line}")


def _header(plan: Plan) -> str:
    int8 = sum(runs_in_int8(plan, step) for step in plan.steps)
    # strings: pointers tell nothing
    size = sum(data.nbytes for data in as_held(plan.constants).values() if data.dtype.kind != "O")
    totals = {
        "steps": len(plan.steps),
        "int8": int8,
        "constants": len(plan.constants),
        "bytes": size,
        "quantizers": len(plan.quantizers),
    }
    return f"plan {name_text(plan.name)}  target={name_text(plan.target)} " + " ".join(
        f"{key}={count}" for key, count in totals.items()
    )


def _constants(plan: Plan) -> list[str]:
    """Constants in the order in which steps read them, then those that nothing reads by name: equal
    plans have equal texts.
    """
    read = [value for step in plan.steps for value in step.inputs if value in plan.constants]
    return list(
        dict.fromkeys(
            [*read, *(v for v in plan.outputs if v in plan.constants), *sorted(plan.constants)]
        )
    )


def _others(plan: Plan) -> list[str]:
    """Values with a type that are neither inputs nor written by a step: a sound plan has none."""
    told = {*plan.inputs, *(value for step in plan.steps for value in step.outputs)}
    return sorted(value for value in plan.values if value not in told)


def _bound(writer: Writer, plan: Plan, value: str) -> str:
    if not value:
        return "_"
    type_ = plan.values.get(value)
    return f"%{name_text(value)} : {'?' if type_ is None else writer.type(type_)}"


def _step_line(writer: Writer, plan: Plan, index: int, step: Step) -> str:
    outputs = ", ".join(_bound(writer, plan, v) for v in step.outputs)
    args = ", ".join(
        f"{name_text(role)}={writer.value(value, plan.constants)}" for role, value in step.args
    )
    kind = name_text(step.primitive) + (
        "" if step.primitive == f"onnx.{step.op}" else f"<{name_text(step.op)}>"
    )
    body = f"{kind}({args}){_params(writer, step)}{_attr_text(writer, plan, step)}"
    return f"  #{index} {outputs} = {body} ; {tail_text(step.name, step.origin)}"


def _params(writer: Writer, step: Step) -> str:
    """Parameters that differ from the row's defaults; `!name` marks one that the row has and the
    step has not.
    """
    row = OPS.get(step.op)
    defaults: Mapping[str, Attr | Required] = {} if row is None else row.attrs
    texts = {name: f"!{name_text(name)}" for name in defaults if name not in step.params}
    for name, value in step.params.items():
        default = defaults.get(name, Required.REQUIRED)
        if isinstance(default, Required) or writer.attr(value) != writer.attr(default):
            texts[name] = f"{name_text(name)}={writer.attr(value)}"
    return "{" + ",".join(texts[name] for name in sorted(texts)) + "}" if texts else ""


def _attr_text(writer: Writer, plan: Plan, step: Step) -> str:
    text, attr = "", step.attr
    for label, held in (("scales", attr.scales), ("zero_points", attr.zero_points)):
        roles = [
            f"{name_text(role)}={factors_text(writer, held[role], order_of(step, role))}"
            for role in sorted(held)
        ]
        text += f" {label}({', '.join(roles)})" if roles else ""
    for label, scale in attr.alone():
        order = order_of(step, "dst") if label == "output_scales" else ""
        text += f" {label}({factors_text(writer, scale, order)})"
    ref = partial(writer.value, constants=plan.constants)
    return text + "".join(f" | {post_op_text(writer, op, ref)}" for op in attr.post_ops)
