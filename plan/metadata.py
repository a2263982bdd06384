"""What a plan knows besides steps and values, as texts for the plan file's metadata, and back.
Nothing is evaluated: JSON and literals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TypeVar

from ..errors import InvalidModel, PlanError
from ..ir.decision import (
    Alternative,
    Decision,
    DequantizeFate,
    Fate,
    Half,
    Outcome,
    QuantizeFate,
    Quantizer,
)
from ..ir.ops.spec import Attr
from ..ir.text_read import Reader
from ..ir.text_write import Writer
from .types import Plan

T = TypeVar("T")


def broken(what: str, where: str = "") -> PlanError:
    """The error of a plan file that is whole, but not what fqfuse writes."""
    return PlanError(
        f"the plan file is broken: {what}",
        where=where,
        hint="compile the model again with this version of fqfuse",
    )


def read_at(where: str, read: Callable[[], T]) -> T:
    """What is read, with the file's name in errors.

    Raises:
        PlanError: it cannot be read.
    """
    try:
        return read()
    except PlanError as error:
        raise PlanError(
            error.what, where=f"{where}: {error.where}" if error.where else where, hint=error.hint
        ) from error
    except InvalidModel as error:  # from the parser of literals
        raise broken(error.what, f"{where}: {error.where}") from error


def add_metadata(owner: Any, pairs: Mapping[str, str]) -> None:
    """Appends entries to the metadata of a model, value or node of ONNX."""
    for key, value in pairs.items():
        owner.metadata_props.add(key=key, value=value)


def metadata_of(owner: Any) -> dict[str, str]:
    """The metadata of a model, value or node of ONNX.

    Raises:
        PlanError: an entry is no UTF-8.
    """
    for entry in owner.metadata_props:
        demand_text("metadata", entry.key, entry.value)
    return {entry.key: entry.value for entry in owner.metadata_props}


def plan_metadata(plan: Plan) -> dict[str, str]:
    """The metadata of a plan: fqfuse.name, .target, .options, .quantizers, .fates, .decisions; and
    .weights where constants are held as codes.
    """
    writer = Writer(in_place=True)
    weights = [[key, writer.quant(q.quant)] for key, q in plan.quantizers.items() if q.quant]
    return {
        "fqfuse.name": plan.name,
        "fqfuse.target": plan.target,
        "fqfuse.options": Writer(in_place=True).attrs(plan.options),
        "fqfuse.quantizers": json_text(
            [[key, q.name, q.form, q.value] for key, q in plan.quantizers.items()]
        ),
        "fqfuse.fates": json_text(plan.fate_records),
        "fqfuse.decisions": json_text(plan.decision_records),
        **({"fqfuse.weights": json_text(weights)} if weights else {}),
    }


def json_text(value: object) -> str:
    """JSON in one spelling; a record is the list of its fields."""
    return json.dumps(
        value, ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=_plain
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return [getattr(value, item.name) for item in fields(value)]


def json_value(text: str, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        PlanError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise broken("its metadata is no JSON", where) from error


def strings_of(value: object, where: str) -> list[str]:
    """The value, when it is a list of strings.

    Raises:
        PlanError: it is not.
    """
    strings = [item for item in value if isinstance(item, str)] if isinstance(value, list) else None
    if strings is None or strings != value:
        raise broken("its metadata is no list of strings", where)
    return strings


def demand_text(what: str, *values: object) -> None:
    """Refuses what is no UTF-8: protobuf then hands out bytes where a string is declared.

    Raises:
        PlanError: a value is no string.
    """
    if not all(isinstance(value, str) for value in values):
        raise broken(f"{what} is no UTF-8")


def text_of(metadata: Mapping[str, str], key: str) -> str:
    """An entry that every plan has.

    Raises:
        PlanError: it is missing.
    """
    if key not in metadata:
        raise broken(f"its metadata lacks {key}")
    return metadata[key]


def literal_attrs(text: str, source: str) -> dict[str, Attr]:
    """Attributes in the words of the text form.

    Raises:
        InvalidModel: they are in other words.
    """
    reader = Reader(text, source=source)
    found = reader.attrs()
    reader.end()
    return found


def _rows(metadata: Mapping[str, str], key: str, width: int) -> list[list[Any]]:
    """A JSON list of lists of the given width."""
    rows = json_value(text_of(metadata, key), key)
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) == width for row in rows
    ):
        raise broken(f"{key} is no list of rows of {width}")
    return rows


def quantizers_of(metadata: Mapping[str, str]) -> dict[str, Quantizer]:
    """The quantizers, in the model's order.

    Raises:
        PlanError: the metadata is malformed.
    """
    rows = [strings_of(row, "fqfuse.quantizers") for row in _rows(metadata, "fqfuse.quantizers", 4)]
    found = {key: Quantizer(name, form, value) for key, name, form, value in rows}
    if "fqfuse.weights" in metadata:
        for row in _rows(metadata, "fqfuse.weights", 2):
            key, text = strings_of(row, "fqfuse.weights")
            if key not in found:
                raise broken("it tells the scales of a quantizer that it does not have", key)
            reader = Reader(text, source=f"the scales of {key}")
            found[key] = replace(found[key], quant=reader.quant())
            reader.end()
    return found


def fates_of(metadata: Mapping[str, str]) -> tuple[Fate, ...]:
    """The fates.

    Raises:
        PlanError: the metadata is malformed.
    """
    return tuple(map(_fate, _rows(metadata, "fqfuse.fates", 6)))


def _fate(row: list[Any]) -> Fate:
    quantizer, half, fate, reason, consumer = strings_of(row[:5], "fqfuse.fates")
    step = row[5]
    if not (step is None or type(step) is int):
        raise broken("the step of a fate is no number", quantizer)
    try:
        found = Half(half)
        place = QuantizeFate(fate) if found is Half.QUANTIZE else DequantizeFate(fate)
    except ValueError as error:
        raise broken(f"there is no fate {half} {fate}", quantizer) from error
    return Fate(quantizer, found, place, reason, consumer, step)


def decisions_of(metadata: Mapping[str, str]) -> tuple[Decision, ...]:
    """The decisions, in order.

    Raises:
        PlanError: the metadata is malformed.
    """
    return tuple(map(_decision, _rows(metadata, "fqfuse.decisions", 10)))


def _decision(row: list[Any]) -> Decision:
    rule, subject, outcome, reason, expected, found, hint = strings_of(row[:7], "fqfuse.decisions")
    if outcome not in ("fired", "refused"):
        raise broken(f"a decision's outcome is {outcome!r}", subject)
    if not isinstance(row[7], list):
        raise broken("the alternatives of a decision are no list", subject)
    weighed = tuple(_alternative(item, subject) for item in row[7])
    step, post_ops = row[8:]
    numbers = [*post_ops, step or 0] if isinstance(post_ops, list) else [None]
    if not all(type(number) is int for number in numbers):
        raise broken("the step or the post-ops of a decision are no numbers", subject)
    why = (reason, expected, found, hint)
    return Decision(rule, subject, Outcome(outcome), *why, weighed, step, tuple(post_ops))


def _alternative(row: object, subject: str) -> Alternative:
    if (
        not isinstance(row, list)
        or len(row) != 3
        or type(row[1]) not in (int, float)
        # JSON writes integers of any size, which no float may hold
        or not abs(row[1]) <= sys.float_info.max
    ):
        raise broken("an alternative of a decision is no row of home, cost and reason", subject)
    home, why_not = strings_of([row[0], row[2]], "fqfuse.decisions")
    return Alternative(home, float(row[1]), why_not)
