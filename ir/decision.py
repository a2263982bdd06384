"""Why the compiler did what it did: decisions of rules, and the fate of every quantizer.

A rule whose anchor matched leaves a `Decision`, fired or refused. A `Quantizer` is what the user's
model holds; it has two halves, and each half has a `Fate`: the place where its arithmetic went.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .types import Quantization

DYNAMIC_FORM = "dynamic, added by fqfuse"
"""The form of quantizers that `compile(..., dynamic=...)` adds."""

MAY_ROUND = " (accuracy_level=4)"
"""In the form of a quantizer of weights: the product that reads them may round its source to codes.
"""

WRITTEN_OUT = "Clip, Cast, Sub and Mul"
"""The form of quantizers that a model writes out as arithmetic, with scales that a run computes."""

DYNAMIC_FORMS = frozenset(
    {DYNAMIC_FORM, WRITTEN_OUT, "DynamicQuantizeLinear", "DynamicQuantizeLSTM"}
)
"""Forms of quantizers that take their range at run time."""


class Outcome(enum.Enum):
    """What a rule did when its anchor matched."""

    FIRED = "fired"
    REFUSED = "refused"


@dataclass(frozen=True)
class Alternative:
    """One home that was weighed for an operation.

    Attributes:
        home: where the operation would go (`sum`, `binary`, `own step` ...).
        cost: passes over the destination tensor, by the composer's cost model.
        why_not: why it is illegal; empty when it is legal.
    """

    home: str
    cost: float
    why_not: str = ""


@dataclass(frozen=True)
class Decision:
    """One rule met one place of the model.

    Attributes:
        rule: name of the rule or pass (`split_fake_quantize`, `relu(x)*s = relu(x*s)`).
        subject: name of the node in the user's model that it is about.
        outcome: fired or refused.
        reason: one sentence; for a refusal the predicate that failed.
        expected: what the rule needs ("one consumer"), empty when it fired.
        found: what is there instead ("3 consumers").
        hint: for a refusal, what the user can change so that it would fire, or why nothing helps.
        alternatives: the homes that were weighed, the chosen one first; empty where nothing was.
        step: index of the plan's step that the subject is a part of by it, or of a refusal that does not
            take it; None where that is not said.
        post_ops: which post-ops of that step do its work, from 0.
    """

    rule: str
    subject: str
    outcome: Outcome
    reason: str
    expected: str = ""
    found: str = ""
    hint: str = ""
    alternatives: tuple[Alternative, ...] = ()
    step: int | None = None
    post_ops: tuple[int, ...] = ()


class Half(enum.Enum):
    """The two halves of a quantizer."""

    QUANTIZE = "quantize"
    DEQUANTIZE = "dequantize"


class QuantizeFate(enum.Enum):
    """Where the quantize half of a quantizer went."""

    DST_SCALE = "dst_scale"
    SOURCE = "source"
    POST_OP = "post_op"
    CONSTANT = "constant"
    REDUNDANT = "redundant"
    STANDALONE = "standalone"
    FALLBACK = "fallback"


class DequantizeFate(enum.Enum):
    """Where the dequantize half of a quantizer went, for one consumer."""

    SOURCE_SCALE = "source_scale"
    WEIGHTS_SCALE = "weights_scale"
    BIAS = "bias"
    CONSTANT = "constant"
    SUM = "sum"
    POST_OP = "post_op"
    REDUNDANT = "redundant"
    STANDALONE = "standalone"
    FALLBACK = "fallback"


@dataclass(frozen=True)
class Fate:
    """Where one half of one quantizer went.

    Attributes:
        quantizer: name of the quantizer.
        half: which half; it decides which of the two enumerations `fate` is of.
        fate: the place.
        reason: one sentence: why there, and where it is not the best place, why not a better one.
        consumer: for a dequantize half, the node (by its name in the user's model) or graph output
            that reads it.
        step: index of the plan's step that does the work; None when no step is left to do.
    """

    quantizer: str
    half: Half
    fate: QuantizeFate | DequantizeFate
    reason: str
    consumer: str = ""
    step: int | None = None


@dataclass(frozen=True)
class Quantizer:
    """A quantizer as the user's model has it, recorded at import.

    Attributes:
        name: its name in the model: the node's, or its output's where that has none or one that is
            taken; of codes that an operator on codes reads, that of the codes.
        form: how it was written (`FakeQuantize`, `QuantizeLinear`, `DequantizeLinear` on a constant
            or an input ...).
        value: the value in the model that it quantizes, by name.
        quant: how the codes of a constant decode that the model holds as codes: the weights' own
            scale, before other factors join it. None for all others.
    """

    name: str
    form: str
    value: str
    quant: Quantization | None = None
