"""Counts over a plan: the numbers that stand in front of every report, in text and in JSON
alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..ir.constants import as_held
from ..ir.decision import DYNAMIC_FORMS, DequantizeFate, Half, Outcome, QuantizeFate
from ..plan.types import Plan, runs_in_int8

COMPUTE = frozenset({"convolution", "deconvolution", "matmul"})
"""Primitives with weights: nearly all arithmetic of a network is in them, so they are what has to
run in int8.
"""

COSTLY = frozenset(
    {
        QuantizeFate.STANDALONE,
        QuantizeFate.FALLBACK,
        DequantizeFate.STANDALONE,
        DequantizeFate.FALLBACK,
    }
)
"""Fates that leave a quantizer a step of its own."""


@dataclass(frozen=True)
class Kind:
    """How many steps are of one primitive.

    Attributes:
        steps: all of them.
        int8: those that run in int8.
    """

    steps: int
    int8: int


@dataclass(frozen=True)
class Summary:
    """The numbers of a plan.

    Attributes:
        model, target: as the plan has them.
        kinds: primitive -> its steps; the most frequent first, then by name.
        post_ops: kind of post-op -> how many the plan holds.
        attributes: kind of attribute (`scales`, `zero_points`, `output_scales`) -> how many steps
            have it.
        forms: how the quantizers were written -> how many, in the order of the model.
        quantize, dequantize: fate -> how many halves went there; the dequantize half counts once
            for each reader.
        settled: quantizers with a fate for both halves.
        fused: settled quantizers that left no step of their own.
        fired, refused: decisions.
        constants, constant_bytes: constants that the steps read.
    """

    model: str
    target: str
    kinds: Mapping[str, Kind]
    post_ops: Mapping[str, int]
    attributes: Mapping[str, int]
    forms: Mapping[str, int]
    quantize: Mapping[str, int]
    dequantize: Mapping[str, int]
    settled: int
    fused: int
    fired: int
    refused: int
    constants: int
    constant_bytes: int

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(kind.steps for kind in self.kinds.values())

    @property
    def int8(self) -> int:
        """Steps that run in int8."""
        return sum(kind.int8 for kind in self.kinds.values())

    @property
    def compute(self) -> Kind:
        """The steps with weights: convolutions and matrix products."""
        found = [kind for name, kind in self.kinds.items() if name in COMPUTE]
        return Kind(sum(kind.steps for kind in found), sum(kind.int8 for kind in found))

    @property
    def dynamic(self) -> int:
        """Quantizers that take their range at run time."""
        return sum(count for form, count in self.forms.items() if form in DYNAMIC_FORMS)

    @property
    def quantizers(self) -> int:
        """Quantizers in the model."""
        return sum(self.forms.values())


def summary_of(plan: Plan) -> Summary:
    """Counts everything in a plan and in the bodies of its If, Loop and Scan; the order of every mapping
    is fixed.
    """
    parts = (plan, *(body for _, body in plan.within))
    all_steps = [(part, step) for part in parts for step in part.steps]
    all_fates = [(part.name, fate) for part in parts for fate in part.fate_records]
    steps = Counter(step.primitive for _, step in all_steps)
    int8 = Counter(step.primitive for part, step in all_steps if runs_in_int8(part, step))
    attributes = {
        "scales": sum(bool(step.attr.scales) for _, step in all_steps),
        "zero_points": sum(bool(step.attr.zero_points) for _, step in all_steps),
        "output_scales": sum(step.attr.output_scales is not None for _, step in all_steps),
    }
    halves = {
        half: {(part, fate.quantizer) for part, fate in all_fates if fate.half is half}
        for half in Half
    }
    quantizers = {
        (part.name, name): held for part in parts for name, held in part.quantizers.items()
    }
    settled = set(quantizers) & halves[Half.QUANTIZE] & halves[Half.DEQUANTIZE]
    outcomes = Counter(decision.outcome for part in parts for decision in part.decision_records)
    return Summary(
        model=plan.name,
        target=plan.target,
        kinds={
            name: Kind(steps[name], int8[name])
            for name in sorted(steps, key=lambda name: (-steps[name], name))
        },
        post_ops=_most_frequent(op.kind for _, step in all_steps for op in step.attr.post_ops),
        attributes={name: count for name, count in attributes.items() if count},
        forms=Counter(quantizer.form for quantizer in quantizers.values()),
        quantize=_in_order(
            QuantizeFate,
            (fate.fate.value for _, fate in all_fates if fate.half is Half.QUANTIZE),
        ),
        dequantize=_in_order(
            DequantizeFate,
            (fate.fate.value for _, fate in all_fates if fate.half is Half.DEQUANTIZE),
        ),
        settled=len(settled),
        fused=len(
            settled - {(part, fate.quantizer) for part, fate in all_fates if fate.fate in COSTLY}
        ),
        fired=outcomes[Outcome.FIRED],
        refused=outcomes[Outcome.REFUSED],
        constants=sum(len(part.constants) for part in parts),
        constant_bytes=sum(
            data.nbytes for part in parts for data in as_held(part.constants).values()
        ),
    )


def _most_frequent(names: Iterable[str]) -> dict[str, int]:
    counts = Counter(names)
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name))}


def _in_order(fates: type[QuantizeFate | DequantizeFate], found: Iterable[str]) -> dict[str, int]:
    counts = Counter(found)
    return {fate.value: counts[fate.value] for fate in fates if counts[fate.value]}
