"""All rules of the composer, in the order in which a chain meets them; docs/rules.md and the tests
of the rules are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.rule import Equation
from ..plan.conversion.output_scale import FACTOR, OF_ARGUMENT, UNSCALED
from ..plan.conversion.real_domain import REAL, TAKEN_APART
from .formula.algebra import COMMUTING, SIMPLIFYING, Rule
from .formula.exact_zeros import EXACT_ZERO
from .formula.formula import ONE_ENTRY
from .formula.operand_rules import OPERANDS
from .formula.store_rules import STORING, StoreRule
from .formula.unary_rules import UNARY
from .formula.writing import WRITING
from .mapping.compared_codes import COMPARING, DIFFERENCE
from .mapping.folding import FOLDING
from .mapping.legacy_eltwise import LEGACY
from .mapping.placing import PLACING
from .steps.depthwise import DEPTHWISE
from .steps.fake_quantize import FAKE_QUANTIZE
from .steps.prelu import PRELU

__all__ = ["SECTIONS", "AnyRule", "Section", "all_rules"]

AnyRule = Rule | StoreRule | Equation[Callable[..., object]]


@dataclass(frozen=True)
class Section:
    """Rules of one kind: their title in the documentation, where they are applied, and they
    themselves.
    """

    title: str
    text: str
    rules: tuple[AnyRule, ...]


_SIMPLIFYING = {rule.name for rule in SIMPLIFYING}

SECTIONS: tuple[Section, ...] = (
    Section(
        "FakeQuantize",
        "Applied to those that the passes leave whole, for no scale and zero point encode them; others are split, see the passes.",
        (FAKE_QUANTIZE,),
    ),
    Section(
        "Vectors",
        "Applied to every vector of factors, shifts and bounds, before anything else looks at it.",
        (ONE_ENTRY,),
    ),
    Section(
        "Operations of one operand",
        "Applied to what changes the chain x by constants alone; the first that fires is taken. Functions that oneDNN has need none.",
        (*UNARY, PRELU),
    ),
    Section(
        "Operations of two operands",
        "Applied to arithmetic of the chain x with a constant c, an f32 tensor t, codes s*(q-z), or itself; the first that fires is taken.",
        OPERANDS,
    ),
    Section(
        "Comparisons, maxima and minima with codes",
        "Applied to a chain and codes s*(q-z); the first that fires is taken. gt stands for every comparison, max for min, too.",
        (*COMPARING, DIFFERENCE),
    ),
    Section(
        "Writing an operation by others",
        "Applied to the end of a chain: to residual adds and to stores inside it, and to a store at its end as far as needed.",
        WRITING,
    ),
    Section(
        "Algebra: simplifying",
        "Applied to two neighbours of a chain wherever they match.",
        SIMPLIFYING,
    ),
    Section(
        "Algebra: moving a factor or shift to the front",
        "Applied where it ends in the weights, the output scale or the bias, or joins one that is computed anyway.",
        tuple(rule for rule in COMMUTING if rule.name not in _SIMPLIFYING),
    ),
    Section(
        "Algebra: into the front",
        "Applied to what has reached the front, y = a*accumulator + b.",
        FOLDING,
    ),
    Section(
        "Algebra: at the store",
        "Applied to the end of a chain that stores codes clip(round(x/s + z)).",
        STORING,
    ),
    Section(
        "Algebra: where 0 shows",
        "Applied in front of roots, logarithms, powers and comparisons.",
        (EXACT_ZERO,),
    ),
    Section(
        "Placing: from operations to post-ops",
        "Applied to what is left of a chain, from its start on; the first that fires is taken.",
        PLACING,
    ),
    Section(
        "Placing: a second eltwise of an algorithm, for oneDNN 2",
        "Applied where its parameters are not those of the first one in the chain; the first that fires is taken.",
        LEGACY,
    ),
    Section(
        "Placing: a step into the one in front",
        "Applied to two steps, once all are composed.",
        (DEPTHWISE,),
    ),
    Section(
        "From oneDNN 2 to oneDNN 3: the same numbers",
        "Applied to the output scale o of a step, and to eltwise post-ops with a scale k; the first that fires is taken.",
        (OF_ARGUMENT, FACTOR, UNSCALED),
    ),
    Section(
        "From oneDNN 2 to oneDNN 3: real numbers",
        "Applied to a step's post-ops from its end on, where d > 0 makes the value behind each the real one, then to the output scale o; "
        "the first that fires is taken. A step in which a number would leave f32 is converted by the rules above.",
        (*REAL, TAKEN_APART),
    ),
)


def all_rules() -> tuple[AnyRule, ...]:
    """Every rule once."""
    return tuple(rule for section in SECTIONS for rule in section.rules)
