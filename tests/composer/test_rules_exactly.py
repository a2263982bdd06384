"""Every rule of the algebra and of the store, as it is registered, on random programs in which it fires.

Identities are held in fractions, to equality; `bitwise` in f32, bit by bit; `ties` in both. Programs are drawn without regard to the
rules, so that a rule that joins the registry is held at once, or fails for firing too seldom.
"""

from __future__ import annotations

import importlib
import pkgutil
import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import settings
from laws.programs import CHANNELS, Draws, arguments, in_f32, points, source, starts
from laws.rational import after_all

import fqfuse.composer
from fqfuse.composer.algebra import COMMUTING, SIMPLIFYING, Rule
from fqfuse.composer.formula import BasicOp, ScaleBy, Shift, Store
from fqfuse.composer.store_rules import STORING, StoreRule
from fqfuse.report.rules import rules_document

LEAST, MOST, DRAWS = 50, 60, 16000
"""Firings that a rule needs; those of one rule that are evaluated; programs drawn."""

ROUNDINGS = 6 * Fraction(1, 2**24)
"""Two constants, a scale's reciprocal, a product and a sum, each half a unit in the last place of the largest term; and one to spare."""

RULES: dict[str, Rule | StoreRule] = {rule.name: rule for rule in (*SIMPLIFYING, *COMMUTING, *STORING)}
SEED = 0 if settings.default.derandomize else secrets.randbits(32)


@dataclass(frozen=True)
class Firing:
    """A program, where in it a rule fired, and what became of it there."""

    program: list[BasicOp | Store]
    place: int
    found: list[BasicOp | Store]

    @property
    def pair(self) -> list[BasicOp | Store]:
        return self.program[self.place : self.place + 2]

    @property
    def whole(self) -> list[BasicOp | Store]:
        return [*self.program[: self.place], *self.found, *self.program[self.place + 2 :]]


@cache
def firings(rough: bool) -> dict[str, list[Firing]]:
    """For each rule the places of random programs where it fires."""
    draws = Draws(source(SEED), rough)
    fired: dict[str, list[Firing]] = {name: [] for name in RULES}
    for _ in range(DRAWS):
        ops = draws.program()
        for place, (a, b) in enumerate(pairwise(ops)):
            for rule in (*SIMPLIFYING, *COMMUTING):
                if len(fired[rule.name]) < MOST and isinstance(found := rule.apply(a, b), tuple) and (rough or exact_in_f64(a, b)):
                    fired[rule.name].append(Firing(list(ops), place, list(found)))
    for _ in range(DRAWS // 4):
        ops, end = draws.stored()
        for stored in STORING:
            if len(fired[stored.name]) < MOST and stored.apply(ops[-1], end) is True:
                fired[stored.name].append(Firing([*ops, end], len(ops) - 1, [end]))
    return fired


def exact_in_f64(a: BasicOp, b: BasicOp) -> bool:
    """False when the quotients of a shift by the factor in front of it have more bits than f64; sums and products of few bits never do."""
    if not (isinstance(a, ScaleBy) and isinstance(b, Shift)):
        return True
    pairs = zip(*np.broadcast_arrays(a.values, b.values), strict=True)
    return all(Fraction(y) / Fraction(x) == Fraction(y / x) for x, y in pairs)


def exactly(start: np.float32, turns: list[Fraction]) -> Fraction:
    """The value; for NaN and far beyond all turning points, the first or last of these, where a clip has cut it off alike."""
    if abs(start) < 1e6:
        return Fraction(float(start))
    return turns[-1] if start > 0 else turns[0]


def claiming(**claim: str) -> pytest.MarkDecorator:
    names = [name for name, rule in RULES.items() if all(getattr(rule, key) == value for key, value in claim.items())]
    return pytest.mark.parametrize("name", names)


# -- the registry ------------------------------------------------------------------------------------------------------------------


def test_every_rule_of_the_composer_is_registered_and_described() -> None:
    modules = [importlib.import_module(f"fqfuse.composer.{found.name}") for found in pkgutil.iter_modules(fqfuse.composer.__path__)]
    values = [value for module in modules for value in vars(module).values()]
    rules = [value for value in values if isinstance(value, Rule | StoreRule)]
    rules += [rule for value in values if isinstance(value, tuple) for rule in value if isinstance(rule, Rule | StoreRule)]
    assert {rule.name for rule in rules} == set(RULES)
    assert all(f"### `{name}`" in rules_document() for name in RULES)


def test_two_rules_of_a_name_are_one() -> None:
    assert all(RULES[rule.name] == rule for rule in (*SIMPLIFYING, *COMMUTING, *STORING))


def test_every_kind_of_operation_is_drawn() -> None:
    draws = Draws(source(0))
    assert {type(op) for _ in range(100) for op in draws.program()} == set(get_args(BasicOp))


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_rule_fires_often_enough(name: str, rough: bool) -> None:
    assert len(firings(rough)[name]) >= LEAST, f"seed {SEED}: teach laws/programs.py to draw what the rule is about"


# -- what they claim ---------------------------------------------------------------------------------------------------------------


@claiming(real="identity")
def test_identity_holds_in_fractions(name: str) -> None:
    draws = Draws(source(SEED))
    for firing in firings(False)[name]:
        held, numbers = draws.operands(), draws.numbers()
        for channel in range(CHANNELS):
            turns = points(firing.pair, channel, held) + points(firing.found, channel, held)
            for x in {*numbers, *turns}:
                values = [after_all(ops, x, channel, held) for ops in (firing.pair, firing.found)]
                assert values[0] == values[1], f"seed {SEED}, channel {channel}, x = {x}, {held}: {firing}"
            for x in (*numbers, *points(firing.program[:1], channel, held)):
                values = [after_all(ops, x, channel, held) for ops in (firing.program, firing.whole)]
                assert values[0] == values[1], f"seed {SEED}, channel {channel}, x = {x}, {held}: {firing}"


@claiming(float="bitwise")
@pytest.mark.parametrize("rough", [False, True])
def test_bitwise_holds_in_f32(name: str, rough: bool) -> None:
    """Bit by bit, NaN and infinities too; only the zeros count as one: x + 0 makes 0 of -0."""
    draws = Draws(source(SEED))
    for firing in firings(rough)[name]:
        held = draws.operands()
        for channel in range(CHANNELS):
            for before, then in ((firing.pair, firing.found), (firing.program, firing.whole)):
                x = starts(before, channel, held, draws.random)
                for divide in (False, True):
                    bits = [(in_f32(ops, x, channel, held, divide=divide) + np.float32(0)).view(np.uint32) for ops in (before, then)]
                    far = bits[0] != bits[1]
                    assert not far.any(), f"seed {SEED}, channel {channel}, x = {x[far]}, {held}: {firing}"


@claiming(float="ties")
def test_ties_part_by_one_and_only_at_ties(name: str) -> None:
    """And they do part: a rule that never does is `bitwise`."""
    draws, parted = Draws(source(SEED)), 0
    for firing in (*firings(False)[name], *firings(True)[name]):
        held = draws.operands()
        for channel in range(CHANNELS):
            x = starts(firing.pair, channel, held, draws.random)
            for divide in (False, True):
                before, then = (in_f32(ops, x, channel, held, divide=divide) for ops in (firing.pair, firing.found))
                far = ~((before == then) | np.isnan(before) & np.isnan(then))
                parted += int(far.sum())
                for start, one, other in zip(x[far], before[far], then[far], strict=True):
                    shown = f"seed {SEED}, channel {channel}, x = {start!r}, {one} and {other}: {firing}"
                    assert abs(float(one) - float(other)) == 1, shown
                    rounded, largest = arguments(firing.pair, exactly(start, points(firing.pair, channel, held)), channel, held)
                    assert min(abs(y % 1 - Fraction(1, 2)) for y in rounded) <= ROUNDINGS * largest, shown
    assert parted
