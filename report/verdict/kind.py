"""What a kind of finding is: its texts, what a change of it brings, and what its remedy does to steps."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from .remedies import Tool


class Gain(enum.Enum):
    """What a change of this kind brings: right numbers, time, some accuracy, or nothing."""

    NUMBERS = "numbers"
    TIME = "time"
    ACCURACY = "accuracy"
    NOTHING = "nothing"


class Effect(enum.Enum):
    """What the remedy does to the steps, besides: floats become codes, and products multiply them."""

    STAY = "they stay"
    CONVERSIONS_GO = "those that only convert go"
    REORDERS_GO = "reorders go"
    QUANTIZERS_GO = "quantizers go, and additions round their terms"
    ALL_GO = "they go"
    FUSED = "they go, and floats stay floats"
    CASTS_GO = "casts go, and floats stay floats"
    PRIMITIVES = "they become primitives"
    CODES_FIT = "they multiply codes as such"


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    Attributes:
        code: its name.
        one, many: what it is, behind a number: `layer in f32`, `layers in f32`.
        looks: how to see it in the model.
        why: why that costs, in one sentence.
        gain: what a change brings.
        effect: what the remedy does to the steps.
        with_additions: tools whose remedy quantizes all additions as well.
        no_remedy: why no quantizer mends it; empty where one does.
        remedies: tool -> what to change, in its own words; `Tool.ANY` where only the words differ. Where
            that depends on circumstances (`circumstances.py`), what to change in each.
        fix: what `fqfuse fix` needs to try it, as options; None where it does not.
    """

    code: str
    one: str
    many: str
    looks: str
    why: str
    gain: Gain = Gain.TIME
    effect: Effect = Effect.STAY
    with_additions: frozenset[Tool] = frozenset()
    no_remedy: str = ""
    remedies: Mapping[Tool, str | Mapping[str, str]] = field(default_factory=dict)
    fix: str | None = None

    def remedy(self, tool: Tool, known: frozenset[str] | None = None) -> tuple[Tool, str]:
        """What to change, and whose words that is; where no quantizer helps, the sentence why.

        Args:
            tool: the quantizer.
            known: the circumstances that hold; None: all that may, each with its name.
        """
        speaking = tool if tool in self.remedies else Tool.ANY
        told = self.remedies.get(speaking, self.no_remedy)
        also = "" if self.fix is None else f"; or fqfuse fix MODEL -o OUT{self.fix}"
        if isinstance(told, str):
            return speaking, told + also
        if known is None:
            return speaking, "; ".join(f"{when}: {text}" for when, text in told.items()) + also
        held = {when: text for when, text in told.items() if when in known} or told
        return speaking, "; ".join(held.values()) + also

    def circumstances(self, tool: Tool) -> tuple[str, ...]:
        """The names of those on which the remedy depends."""
        told = self.remedies.get(tool if tool in self.remedies else Tool.ANY, "")
        return () if isinstance(told, str) else tuple(told)
