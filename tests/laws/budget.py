"""How many examples a Hypothesis test draws: its own number, and many more in `make fuzz`; and
shards that xdist can share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, seed, settings

Test = Callable[..., Any]
T = TypeVar("T")

_RATIO = settings.default.max_examples / 100
"""The profile's number against Hypothesis' own default: 0.1 in `make test`, 1 in `make test-all`, 30
in `make fuzz`."""

ENOUGH = _RATIO >= 1
"""Whether a count over all examples, such as how often a rule fires, says something."""


def some(many: Sequence[T]) -> Sequence[T]:
    """Every third of them in `make test`, and all otherwise."""
    return many[:: 1 if ENOUGH else 3]


def examples(usual: int, fuzz: int = 0) -> settings:
    """`usual` examples in `make test-all`; otherwise that many in proportion to the profile, or in
    `make fuzz` the number `fuzz` where it is given.

    Health checks are off: drawing a graph takes longer than Hypothesis expects of a strategy.
    """
    count = fuzz if fuzz and _RATIO > 1 else max(1, round(usual * _RATIO))
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


def shard(number: int) -> Callable[[Test], Test]:
    """One part of a test that is split: its examples are the same in every `make test`, and other
    ones than those of the other parts.

    In `make fuzz` every run draws its own.
    """
    return seed(number) if settings.default.derandomize else lambda test: test
