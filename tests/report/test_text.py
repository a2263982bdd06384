"""The report for people: golden texts at several widths, folding, and names that stay whole in a
pipe.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.plan_text import parse_plan

from fqfuse.ir.decision import (
    Alternative,
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr
from fqfuse.plan.types import Plan, Step
from fqfuse.report.json import plan_json
from fqfuse.report.layout import PIPE, Layout
from fqfuse.report.text import Table, plan_report, short_report, summary_report

PATH = "/encoder/layer.11/attention/self/a_name_that_goes_on_and_on"


WITHOUT_DECISIONS = [table for table in Table if table is not Table.DECISIONS]


def shown(flags: list[str]) -> list[Table]:
    return list(Table) if "decisions" in flags else WITHOUT_DECISIONS


@pytest.mark.golden("report")
def test_report(golden, rendered) -> None:
    first, _, text = golden.input.partition("\n")
    width, *flags = first.removeprefix("; width=").split()
    layout = PIPE if width == "pipe" else Layout(int(width), 200)
    golden.check(
        "\n".join(rendered(plan_report(parse_plan(text), layout, tables=shown(flags)), layout))
    )


def long_plan(count: int) -> Plan:
    """A chain of eltwise steps with a quantizer each; every hundredth costs a step, and every tenth
    was refused something.
    """
    names = [f"{PATH}/Relu_{index}" for index in range(count)]
    type_ = TensorType(DType.F32, ("N", 8))
    relu = PrimitiveAttr(post_ops=(Eltwise("relu"),))
    steps = tuple(
        Step(
            name,
            "eltwise",
            "Relu",
            (("src", names[index - 1] if index else "x"),),
            (name,),
            {"algorithm": "relu"},
            relu,
            (name, name + "/q"),
        )
        for index, name in enumerate(names)
    )
    fates = []
    for index, name in enumerate(names):
        fate = QuantizeFate.STANDALONE if index % 100 == 50 else QuantizeFate.DST_SCALE
        fates.append(Fate(name + "/q", Half.QUANTIZE, fate, "because", step=index))
        fates.append(
            Fate(name + "/q", Half.DEQUANTIZE, DequantizeFate.SOURCE_SCALE, "as ever", name, index)
        )
    return Plan(
        name="long",
        target="onednn-v3",
        inputs=("x",),
        outputs=(names[-1],),
        values={"x": type_, **dict.fromkeys(names, type_)},
        constants={},
        steps=steps,
        quantizers={f"{name}/q": Quantizer(f"{name}/q", "FakeQuantize", name) for name in names},
        fate_records=tuple(fates),
        decision_records=tuple(
            Decision("rule", name, Outcome.REFUSED, "no", "this", "that", "do it")
            for name in names[::10]
        ),
    )


def test_a_terminal_folds_what_is_long_and_keeps_what_costs(rendered) -> None:
    layout = Layout(120, 200)
    lines = rendered(plan_report(long_plan(1000), layout), layout)
    assert len(lines) < 800
    assert "    …  800 more: see --all" in lines
    assert "  … 800 more quantizers, none of which cost a step: --all shows them" in lines
    assert sum("standalone #" in line for line in lines) == 10
    assert any(line.endswith("and 94 more: --all shows them") for line in lines), (
        "100 places of one refusal"
    )
    steps = [line.split()[0] for line in lines if "eltwise relu" in line]
    assert (steps[0], steps[-1]) == ("0", "999")
    text = "\n".join(lines)
    assert text.index("steps ") < text.index("Steps"), "the summary stands first"


def test_all_rows_fold_nothing(rendered) -> None:
    layout = Layout(120, None)
    lines = rendered(plan_report(long_plan(1000), layout), layout)
    assert not any("--all" in line for line in lines)
    assert sum("eltwise relu" in line for line in lines) == 1000


def test_a_pipe_gets_every_row_on_one_line_with_whole_names(rendered) -> None:
    plan = long_plan(300)
    lines = rendered(plan_report(plan, PIPE), PIPE)
    for name in plan.outputs + tuple(step.name for step in plan.steps):
        assert sum(f"{name}, {name}/q" in line for line in lines) == 1, "its step"
        assert sum(line.startswith(f"  {name}/q ") for line in lines) == 2, "its two fates"
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("report", [plan_report, short_report], ids=["whole", "short"])
def test_a_terminal_gets_no_longer_line_than_it_has_columns(rendered, width: int, report) -> None:
    layout = Layout(width, 200)
    lines = rendered(report(long_plan(30), layout), layout)
    assert max(map(len, lines)) <= width


def test_names_are_not_taken_for_markup(rendered) -> None:
    plan = long_plan(1)
    named_size = TensorType(DType.F32, ("bold", "red"))
    plan = replace(plan, values=dict.fromkeys(plan.values, named_size))
    odd = "[bold]x[/bold] :smile: [/]"
    fate = Fate(odd, Half.QUANTIZE, QuantizeFate.DST_SCALE, odd, step=0)
    decision = Decision(odd, odd, Outcome.REFUSED, odd, odd, odd, odd)
    quantizers = {odd: Quantizer(odd, "FakeQuantize", odd)}
    plan = replace(
        plan,
        steps=(replace(plan.steps[0], origin=(odd,)),),
        quantizers=quantizers,
        fate_records=(fate,),
        decision_records=(decision,),
    )
    text = "\n".join(rendered(plan_report(plan, PIPE, title=odd), PIPE))
    assert text.count(odd) >= 9
    assert text.count("f32[bold,red]") == 3, "input, output, step"
    assert "WITHOUT A FATE" in text, "the dequantize half"


def test_the_title_is_the_files_name_where_there_is_one(rendered) -> None:
    plan = long_plan(1)
    assert (
        rendered(plan_report(plan, PIPE, title="a.onnx"), PIPE)[0]
        == "a.onnx  compiled for onednn-v3"
    )
    assert rendered(summary_report(plan), PIPE)[0] == "long  compiled for onednn-v3"
    assert rendered(summary_report(plan, more={"plan": "p.onnx (3 bytes)"}), PIPE)[-1].split(
        maxsplit=1
    ) == ["plan", "p.onnx (3 bytes)"]


def test_weighed_says_what_was_weighed_with_the_reasons(rendered) -> None:
    homes = (
        Alternative("binary", 2.03),
        Alternative("own step", 9.14),
        Alternative("sum", 0.0, "the skip is returned by the model"),
    )
    decision = Decision(
        "home of Add", "add7", Outcome.FIRED, "binary costs 2.03 passes", alternatives=homes
    )
    plan = replace(long_plan(2), decision_records=(decision, replace(decision, subject="add9")))
    text = "\n".join(rendered(plan_report(plan, PIPE, tables=[Table.WEIGHED]), PIPE))
    homes_text = "binary 2.03 < own step 9.14; no sum: the skip is returned by the model"
    assert [line.split(maxsplit=4)[3:] for line in text.splitlines() if homes_text in line] == [
        ["add7", homes_text],
        ["add9", homes_text],
    ]
    weighed = plan_json(plan)["decisions"][0]["alternatives"]
    assert weighed == [
        {"home": "binary", "cost": 2.03, "why_not": ""},
        {"home": "own step", "cost": 9.14, "why_not": ""},
        {"home": "sum", "cost": None, "why_not": "the skip is returned by the model"},
    ]
