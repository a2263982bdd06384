"""What the text of a refusal must be, checked of every one that any test comes across."""

from __future__ import annotations

from functools import wraps
from typing import Any

from fqfuse.ir.rule import Refusal


def problem_of(hint: str) -> str:
    """What is wrong with a refusal's text; empty where it says something, in the form of a fix."""
    if len(hint.split()) < 2:
        return "says nothing"
    if not (hint[0].islower() or hint.startswith(("ONNX", "FakeQuantize", "-", "`", "'"))):
        return "does not begin in lower case"
    return "ends with a full stop" if hint.endswith(".") else ""


def look_at_refusals() -> None:
    """From now on the text of every refusal that is made is looked at."""
    made = Refusal.__init__

    @wraps(made)
    def looking(self: Refusal, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        problem = problem_of(self.hint)
        assert not problem, f"a refusal that {problem}: {self}"

    Refusal.__init__ = looking  # type: ignore[method-assign]
