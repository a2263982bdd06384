"""All rules of the composer, in the order in which a chain meets them; docs/contributing/rules.md and the tests
of the rules are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..ir.rule import Rule
from ..plan.conversion.output_scale import FACTOR, OF_ARGUMENT, UNSCALED
from ..plan.conversion.real_domain import REAL, TAKEN_APART
from .formula.algebra import COMMUTING, SIMPLIFYING
from .formula.approximating import UNCLIPPED, UNROUNDED
from .formula.definitions import PRODUCT_OF_CODES, ROUNDED_FIRST
from .formula.exact_zeros import EXACT_ZERO
from .formula.store_rules import NARROW_STORE, STORING
from .formula.writing import ADDING
from .mapping.compared_codes import DECODED_WITH_CODES, DIFFERENCE
from .mapping.scale_propagation import FOLDING
from .mapping.to_post_ops import ELTWISE_SCALE, SECOND_ELTWISE
from .steps.depthwise import DEPTHWISE
from .steps.fake_quantize import FAKE_QUANTIZE
from .steps.prelu import PRELU

AnyRule = Rule[Callable[..., object]]


class Section(NamedTuple):
    """Rules of one kind: their title in the documentation, where they are applied, and they
    themselves.
    """

    title: str
    text: str
    rules: tuple[AnyRule, ...]


SECTIONS: tuple[Section, ...] = (
    Section(
        "FakeQuantize",
        "Applied to those that no scale and zero point encode. Passes split the others.",
        (FAKE_QUANTIZE,),
    ),
    Section(
        "Operations as basic operations",
        "Applied to what a node does to the chain x, alone or with codes k*(q-z). An operation without a guard is a definition: see "
        "`definitions.py`, `chain.py` and `to_post_ops.py`.",
        (ROUNDED_FIRST, PRELU, PRODUCT_OF_CODES),
    ),
    Section(
        "Comparisons, maxima and minima",
        "Applied to a chain and codes s*(q-z), or another tensor t. gt stands for every comparison, max also for min.",
        (DECODED_WITH_CODES, DIFFERENCE),
    ),
    Section(
        "Writing a residual add as a binary addition",
        "Applied to the end of a chain. The first that fires is taken if a later operation depends on an exact 0, otherwise the last.",
        ADDING,
    ),
    Section(
        "Algebra: simplifying",
        "Applied to two neighbours of a chain wherever they match, where the affine maps between are one scale and one shift.",
        SIMPLIFYING,
    ),
    Section(
        "Algebra: moving a factor or shift to the front",
        "Applied where the factor or shift ends in the weights, the output scale or the bias, or joins one that is computed anyway. "
        "Operations that commute without a guard are arithmetic: see `algebra.py`.",
        COMMUTING,
    ),
    Section(
        "Algebra: into the front",
        "Applied to factors and shifts that have reached the front, y = a*accumulator + b.",
        FOLDING,
    ),
    Section(
        "Algebra: at the store",
        "Applied to the end of a chain that stores codes clip(round(x/s + z)).",
        (*STORING, NARROW_STORE),
    ),
    Section(
        "Algebra: where 0 shows",
        "Applied in front of roots, logarithms, powers and comparisons; with a V in front of roundings and comparisons.",
        (EXACT_ZERO,),
    ),
    Section(
        "Approximations",
        "Applied to a quantizer inside a chain and the operations after it. A caller has to name them. They are made where they save "
        "post-ops or let the chain continue; of two that match, the one that saves more.",
        (UNROUNDED, UNCLIPPED),
    ),
    Section(
        "Placing: what oneDNN 2 takes",
        "Applied to the post-ops of a chain. Those of oneDNN 3 have the definitions of basic operations.",
        (ELTWISE_SCALE, SECOND_ELTWISE),
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
        "Applied to a step's post-ops, the last one first, where d > 0 makes the value after each the real one, and then to the output "
        "scale o. The first that fires is taken. A step in which a number would leave f32 is converted by the rules above.",
        (*REAL, TAKEN_APART),
    ),
)


def all_rules() -> tuple[AnyRule, ...]:
    """Every rule once."""
    return tuple(rule for section in SECTIONS for rule in section.rules)
