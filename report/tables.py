"""The tables of a plan as rows of plain data, which pandas and a CSV writer take."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from ..errors import printable
from ..ir.decision import Half
from ..plan.open_sizes import NO_SIZES
from ..plan.types import Plan, check_is_plan, runs_in_int8
from .fates import fates_by_quantizer
from .notation import Notation, rounded
from .verdict.estimate import Costs
from .verdict.findings import FindingData, Verdict, verdict_of
from .verdict.machine import Machine
from .weighed import weighed_text


class Cost(TypedDict):
    """What a step costs: whether f32 kernels multiply its codes, multiply-adds, bytes read and written, estimated
    milliseconds.
    """

    codes_in_f32: bool
    macs: int
    bytes: int
    ms: float


class StepRow(TypedDict):
    """A step, and what it costs."""

    index: int
    primitive: str
    what: str
    types: str
    fused: list[str]
    origin: list[str]
    int8: bool
    codes_in_f32: bool
    macs: int
    bytes: int
    ms: float
    findings: list[str]


class FateRow(TypedDict):
    """Where one half of a quantizer went."""

    quantizer: str
    form: str
    half: str
    fate: str
    step: int | None
    consumer: str
    reason: str


class DecisionRow(TypedDict):
    """What a rule did at one place."""

    rule: str
    subject: str
    outcome: str
    reason: str
    expected: str
    found: str
    hint: str
    weighed: str


TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: tuple(row.__annotations__)
        for name, row in {
            "findings": FindingData,
            "steps": StepRow,
            "fates": FateRow,
            "decisions": DecisionRow,
        }.items()
    }
)
"""The tables that there are as CSV, with their columns."""

_FORMULA = ("=", "+", "-", "@")
_MANY = "; "


def steps_table(
    plan: Plan, *, sizes: Mapping[str, int] = NO_SIZES, machine: Machine | None = None
) -> list[StepRow]:
    """The steps of a plan, with what each costs.

    Args:
        plan: any plan.
        sizes: of what the model leaves open, such as `{"sequence_length": 128}`; others are guessed.
        machine: what times are estimated for; None: this one.

    Returns:
        One row a step, in their order: `index`, `primitive`, `what` (with window and groups), `types`
        (element types in, type out), `fused` (what is applied inside, in order), `origin` (names in
        the model), `int8`, `codes_in_f32` (f32 kernels multiply its codes, because this CPU has no
        VNNI), `macs` (multiply-adds), `bytes` (read and written), `ms` (estimated, not measured),
        `findings` (codes of docs/findings.md that it belongs to).

    Raises:
        InvalidInput: it is no plan, or has no such size.
    """
    check_is_plan(plan)
    verdict = verdict_of(plan, machine, sizes)
    notation, codes = Notation(plan), _codes(verdict)
    return [
        {
            "index": index,
            "primitive": step.primitive,
            "what": notation.primitive(step),
            "types": notation.types(step),
            "fused": notation.fused(step),
            "origin": list(step.origin),
            "int8": runs_in_int8(plan, step),
            **cost_of(verdict.costs, index),
            "findings": codes.get(index, []),
        }
        for index, step in enumerate(plan.steps)
    ]


def cost_of(costs: Costs, index: int) -> Cost:
    """What a step costs."""
    work = costs.works[index]
    return {
        "codes_in_f32": bool(work.in_f32),
        "macs": work.macs,
        "bytes": work.bytes,
        "ms": rounded(costs.ms[index]),
    }


def fates_table(plan: Plan) -> list[FateRow]:
    """Where each half of each quantizer went.

    Returns:
        One row a fate, in the order of the model: `quantizer`, `form` (how it was written), `half`
        (`quantize` or `dequantize`), `fate`, `step` (an index, or None where nothing is left to do),
        `consumer` (the reader of a dequantize half), `reason`.

    Raises:
        InvalidInput: it is no plan.
    """
    check_is_plan(plan)
    return [
        {
            "quantizer": name,
            "form": plan.quantizers[name].form,
            "half": half.value,
            "fate": fate.fate.value,
            "step": fate.step,
            "consumer": fate.consumer,
            "reason": fate.reason,
        }
        for name, halves in fates_by_quantizer(plan).items()
        for half, fates in zip(Half, halves, strict=True)
        for fate in fates
    ]


def decisions_table(plan: Plan) -> list[DecisionRow]:
    """What every rule did.

    Returns:
        One row a decision, in their order: `rule`, `subject` (a node of the model), `outcome` (`fired`
        or `refused`), `reason`, `expected`, `found`, `hint` (what would help), `weighed` (the homes
        and what they cost, the chosen one first).

    Raises:
        InvalidInput: it is no plan.
    """
    check_is_plan(plan)
    return [
        {
            "rule": decision.rule,
            "subject": decision.subject,
            "outcome": decision.outcome.value,
            "reason": decision.reason,
            "expected": decision.expected,
            "found": decision.found,
            "hint": decision.hint,
            "weighed": weighed_text(decision),
        }
        for decision in plan.decision_records
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV (RFC 4180): a header, lines that end in CR LF, quotes where they are needed.

    A text that a spreadsheet would take for a formula, because it begins with `=`, `+`, `-` or `@`,
    gets an apostrophe in front: names come from the model, and a formula runs. Control characters
    are escaped, so that no cell has line ends. Several texts in one cell have `; ` between them;
    truths are `true` and `false`, and what is not there is an empty cell.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return buffer.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    # Each by itself: a long list is no long name.
    texts = [value] if isinstance(value, str) else map(str, _items(value))
    text = _MANY.join(map(printable, texts))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _items(value: object) -> Iterator[object]:
    assert isinstance(value, list)
    return iter(value)


def _codes(verdict: Verdict) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for finding in verdict.findings:
        for index in finding.steps:
            found.setdefault(index, []).append(finding.kind.code)
    return found
