"""Every rule of the composer, as it is registered, on random programs in which it fires.

Identities are held in fractions, to equality; `bitwise` in f32, bit by bit; `ties` in both.
Programs are drawn without regard to the rules, so that a rule that joins the registry is held at
once, or fails for firing too seldom.
"""

from __future__ import annotations

import importlib
import pkgutil
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from hypothesis import settings
from laws.budget import ENOUGH, examples
from laws.formulas import UNIFIED, V2, V3, conv
from laws.programs import CHANNELS, Draws, arguments, in_f32, points, source, starts
from laws.rational import after_all, binary, composed_value, entry, front_value
from laws.rule_cases import ARITHMETIC, STORES_AND_ADDS
from make.rules import rules_document

import fqfuse.composer
from fqfuse.composer.formula.algebra import COMMUTING, SIMPLIFYING
from fqfuse.composer.formula.approximating import UNCLIPPED, UNROUNDED
from fqfuse.composer.formula.definitions import (
    PRODUCT_OF_CODES,
    ROUNDED_FIRST,
    with_constant,
    with_itself,
    with_tensor,
)
from fqfuse.composer.formula.exact_zeros import EXACT_ZERO
from fqfuse.composer.formula.formula import (
    Add,
    BasicOp,
    Clip,
    EltwiseOp,
    ScaleBy,
    Shift,
    Store,
    vec,
)
from fqfuse.composer.formula.store_rules import NARROW_STORE, STORING
from fqfuse.composer.formula.writing import ADDING, Written
from fqfuse.composer.mapping.compared_codes import DECODED_WITH_CODES, DIFFERENCE
from fqfuse.composer.mapping.composed import Composed, Front
from fqfuse.composer.mapping.scale_propagation import FOLDING
from fqfuse.composer.mapping.to_post_ops import ELTWISE_SCALE, SECOND_ELTWISE, place
from fqfuse.composer.registry import AnyRule, all_rules
from fqfuse.composer.steps.depthwise import DEPTHWISE
from fqfuse.composer.steps.fake_quantize import FAKE_QUANTIZE
from fqfuse.composer.steps.prelu import PRELU
from fqfuse.ir.ranges import Ranges
from fqfuse.ir.rule import Refusal, Rule
from fqfuse.ir.types import DType
from fqfuse.plan.attributes import PostOp
from fqfuse.plan.conversion.output_scale import FACTOR, OF_ARGUMENT, UNSCALED
from fqfuse.plan.conversion.real_domain import REAL, TAKEN_APART
from fqfuse.plan.targets import Target

LEAST, MOST, DRAWS = 50, 60, 16000
"""Firings that a rule needs; those of one rule that are evaluated; programs drawn."""

ROUNDINGS = 6 * Fraction(1, 2**24)
"""Two constants, a scale's reciprocal, a product and a sum, each half a unit in the last place of
the largest term; and one to spare.
"""

PAIRS: tuple[Rule, ...] = (*SIMPLIFYING, *COMMUTING, *ARITHMETIC, EXACT_ZERO)
WRITING: tuple[Rule, ...] = (
    *ADDING,
    *STORES_AND_ADDS,
    replace(NARROW_STORE, apply=lambda program: _narrowed(program[-1])),
)
RULES: dict[str, AnyRule] = {rule.name: rule for rule in (*PAIRS, *STORING, *WRITING)}
ALL: dict[str, AnyRule] = {rule.name: rule for rule in all_rules()}
SEED = 0 if settings.default.derandomize else secrets.randbits(32)


def _narrowed(end: BasicOp | Store) -> Written | None:
    found = NARROW_STORE.apply(end) if isinstance(end, Store) else None
    return Written(1, found) if isinstance(found, tuple) else None


@dataclass(frozen=True)
class Firing:
    """A program, where in it a rule fired, what became of it there, and how many operations were
    replaced.
    """

    program: list[BasicOp | Store]
    place: int
    found: list[BasicOp | Store]
    replaced: int = 2

    @property
    def pair(self) -> list[BasicOp | Store]:
        return self.program[self.place : self.place + self.replaced]

    @property
    def whole(self) -> list[BasicOp | Store]:
        return [
            *self.program[: self.place],
            *self.found,
            *self.program[self.place + self.replaced :],
        ]


@cache
def firings(rough: bool) -> dict[str, list[Firing]]:
    """For each rule the places of random programs where it fires."""
    draws = Draws(source(SEED), rough)
    fired: dict[str, list[Firing]] = {name: [] for name in RULES}
    for _ in range(DRAWS):
        ops = draws.program()
        for at, (a, b) in enumerate(pairwise(ops)):
            for rule in PAIRS:
                if (
                    len(fired[rule.name]) < MOST
                    and isinstance(found := rule.apply(a, b), tuple)
                    and (rough or exact_in_f64([a, b]))
                ):
                    fired[rule.name].append(Firing(list(ops), at, list(found)))
    for _ in range(DRAWS // 4):
        ops, end = draws.stored()
        for stored in STORING:
            if len(fired[stored.name]) < MOST and stored.apply(ops[-1], end) is True:
                fired[stored.name].append(Firing([*ops, end], len(ops) - 1, [end]))
        program = draws.ended()
        for writing in WRITING:
            written = writing.apply(program) if len(fired[writing.name]) < MOST else None
            if isinstance(written, Written) and (
                rough or exact_in_f64(program[-written.replaced :])
            ):
                at = len(program) - written.replaced
                fired[writing.name].append(Firing(program, at, list(written.ops), written.replaced))
    return fired


def exact_in_f64(ops: Sequence[BasicOp | Store]) -> bool:
    """False when quotients that a rule forms have more bits than f64: by a factor, or a scale. Sums
    and products of few bits never do.
    """
    one, end = np.ones(1), ops[-1]
    divisors = (
        [end.scale if isinstance(end, Store) else vec(end.scale)]
        if isinstance(end, Store | Add)
        else []
    )
    quotients = [(one, divisor) for divisor in divisors]
    for op in ops[:-1]:
        if isinstance(op, ScaleBy):
            quotients += [(divisor, op.values) for divisor in divisors] + [
                (op.values, divisor) for divisor in divisors
            ]
            quotients += [(end.values, op.values)] if isinstance(end, Shift) else []
    entries = [pair for x, y in quotients for pair in zip(*np.broadcast_arrays(x, y), strict=True)]
    return all(Fraction(x) / Fraction(y) == Fraction(x / y) for x, y in entries)


def exactly(start: np.float32, turns: list[Fraction]) -> Fraction:
    """The value; for NaN and far beyond all turning points, the first or last of these, where a
    clip has cut it off alike.
    """
    if abs(start) < 1e6:
        return Fraction(float(start))
    return turns[-1] if start > 0 else turns[0]


def claiming(**claim: str) -> pytest.MarkDecorator:
    names = [
        name
        for name, rule in RULES.items()
        if all(getattr(rule, key) == value for key, value in claim.items())
    ]
    return pytest.mark.parametrize("name", names)


# -- the registry ----------------------------------------------------------------------------------


def test_every_rule_of_the_composer_is_registered_and_described() -> None:
    modules = [
        importlib.import_module(f"fqfuse.composer.{found.name}")
        for found in pkgutil.iter_modules(fqfuse.composer.__path__)
    ]
    values = [value for module in modules for value in vars(module).values()]
    rules = [value for value in values if isinstance(value, Rule)]
    rules += [
        rule
        for value in values
        if isinstance(value, tuple)
        for rule in value
        if isinstance(rule, Rule)
    ]
    assert {rule.name for rule in rules} == set(ALL)
    assert all(f"### `{name}`" in rules_document() for name in ALL)


ELSEWHERE = (
    FAKE_QUANTIZE,
    PRODUCT_OF_CODES,
    *FOLDING,
    ELTWISE_SCALE,
    ROUNDED_FIRST,
    PRELU,
    DECODED_WITH_CODES,
    DIFFERENCE,
    SECOND_ELTWISE,
    OF_ARGUMENT,
    FACTOR,
    UNSCALED,
    *REAL,
    TAKEN_APART,
    DEPTHWISE,
    UNROUNDED,
    UNCLIPPED,
)
"""The first five below; the others in test_approximating.py, test_unary_rules.py, test_comparing_rules.py,
test_legacy_eltwise.py, test_convert_rules.py, test_depthwise.py.
"""


def test_every_rule_is_held_here_or_in_the_tests_of_its_file() -> None:
    arithmetic = {rule.name for rule in (*ARITHMETIC, *STORES_AND_ADDS)}
    assert set(ALL) == {*RULES, *(rule.name for rule in ELSEWHERE)} - arithmetic


def test_every_kind_of_operation_is_drawn() -> None:
    draws = Draws(source(0))
    assert {type(op) for _ in range(100) for op in draws.program()} == set(get_args(BasicOp))


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_rule_fires_often_enough(name: str, rough: bool) -> None:
    assert len(firings(rough)[name]) >= LEAST, (
        f"seed {SEED}: teach laws/programs.py to draw what the rule is about"
    )


# -- what they claim -------------------------------------------------------------------------------


@claiming(real="identity")
def test_identity_holds_in_fractions(name: str) -> None:
    draws = Draws(source(SEED))
    for firing in firings(False)[name]:
        held, numbers = draws.operands(), draws.numbers()
        for channel in range(CHANNELS):
            turns = points(firing.pair, channel, held) + points(firing.found, channel, held)
            for x in {*numbers, *turns}:
                values = [after_all(ops, x, channel, held) for ops in (firing.pair, firing.found)]
                assert values[0] == values[1], (
                    f"seed {SEED}, channel {channel}, x = {x}, {held}: {firing}"
                )
            for x in (*numbers, *points(firing.program[:1], channel, held)):
                values = [
                    after_all(ops, x, channel, held) for ops in (firing.program, firing.whole)
                ]
                assert values[0] == values[1], (
                    f"seed {SEED}, channel {channel}, x = {x}, {held}: {firing}"
                )


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
                    bits = [
                        (in_f32(ops, x, channel, held, divide=divide) + np.float32(0)).view(
                            np.uint32
                        )
                        for ops in (before, then)
                    ]
                    far = bits[0] != bits[1]
                    assert not far.any(), (
                        f"seed {SEED}, channel {channel}, x = {x[far]}, {held}: {firing}"
                    )


@claiming(float="ties")
def test_ties_part_by_one_and_only_at_ties(name: str) -> None:
    """And they do part: a rule that never does is `bitwise`."""
    draws, parted = Draws(source(SEED)), 0
    for firing in (*firings(False)[name], *firings(True)[name]):
        held = draws.operands()
        for channel in range(CHANNELS):
            x = starts(firing.pair, channel, held, draws.random)
            for divide in (False, True):
                before, then = (
                    in_f32(ops, x, channel, held, divide=divide)
                    for ops in (firing.pair, firing.found)
                )
                far = ~((before == then) | np.isnan(before) & np.isnan(then))
                parted += int(far.sum())
                for start, one, other in zip(x[far], before[far], then[far], strict=True):
                    shown = f"seed {SEED}, channel {channel}, x = {start!r}, {one} and {other}: {firing}"
                    assert abs(float(one) - float(other)) == 1, shown
                    rounded, largest = arguments(
                        firing.pair,
                        exactly(start, points(firing.pair, channel, held)),
                        channel,
                        held,
                    )
                    assert (
                        min(abs(y % 1 - Fraction(1, 2)) for y in rounded) <= ROUNDINGS * largest
                    ), shown
    assert parted


# -- two operands ----------------------------------------------------------------------------------


ALGORITHMS = ("add", "sub", "mul", "div", "max", "min")


@pytest.mark.parametrize("algorithm", ["add", "mul"])
def test_the_chain_with_itself_holds_in_fractions(algorithm: str) -> None:
    found = with_itself(algorithm)
    assert found is not None
    for x in Draws(source(SEED)).numbers():
        assert after_all(found, x, 0, {}) == binary(algorithm, x, x)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "gt", "le", "eq"])
def test_a_constant_holds_in_fractions(algorithm: str, first: bool) -> None:
    """Factors of few bits, whose reciprocals are exact; a comparison has the chain first."""
    if not first and algorithm not in ALGORITHMS:
        return
    draws = Draws(source(SEED))
    draw = draws.random.choice
    for _ in range(LEAST):
        zero = 0 if algorithm != "div" or not first else 1
        values = vec(
            [draw([0.5, -2.0, 4.0, 0.25]) * draw([1, 1, zero]) for _ in range(draw([1, CHANNELS]))]
        )
        found = with_constant(algorithm, values, lambda: "constant", first=first)
        for channel in range(CHANNELS):
            c = Fraction(entry(values, channel))
            for x in filter(None, draws.numbers()):  # a quotient has it below
                wanted = binary(algorithm, *((x, c) if first else (c, x)))
                assert after_all(found, x, channel, {"constant": c}) == wanted, f"{values}: {found}"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tensor_holds_in_fractions(algorithm: str, first: bool) -> None:
    """f32 values, and codes; `PRODUCT_OF_CODES` makes products of them."""
    draws, fired = Draws(source(SEED)), 0
    draw = draws.random.choice
    for _ in range(4 * LEAST):
        codes = algorithm in ("add", "sub", "mul", "div") and draw([True, False])
        scale, zero = (draw([0.5, 4.0, -0.75]), draw([0.0, 0.0, 3.0, 1.5])) if codes else (1.0, 0.0)
        if algorithm == "div":
            scale = abs(scale) if scale != -0.75 else 2.0
        t = Add("other", DType.U8 if codes else DType.F32, scale, zero)
        found = with_tensor(algorithm, t, first=first)
        if isinstance(found, Refusal):
            assert algorithm in ("mul", "div")
            assert zero
            continue
        fired += 1
        held = draws.operands()
        other = Fraction(scale) * (held["other"] - Fraction(zero))
        for x in filter(None, draws.numbers()):
            wanted = binary(algorithm, *((x, other) if first else (other, x)))
            assert after_all(found, x, 0, held) == wanted, f"x = {x}, {held}: {t} as {found}"
    assert fired >= LEAST


# -- FakeQuantize ----------------------------------------------------------------------------------


def test_a_fake_quantize_holds_in_fractions() -> None:
    """Proper ranges, with steps that are powers of two; thresholds and inverted ranges have cases
    in test_fake_quantize_positions.py.
    """
    draws = Draws(source(SEED))
    draw, number = draws.random.choice, draws.random.randint
    for _ in range(LEAST):
        levels, size = 2 ** number(1, 7) + 1, draw([1, CHANNELS])
        low, start = (vec([number(-40, 40) / 8 for _ in range(size)]) for _ in range(2))
        width, out = (
            vec([2.0 ** number(-2, 3) * draw([1, sign]) for _ in range(size)]) for sign in (1, -1)
        )
        ops = FAKE_QUANTIZE.apply(Ranges(low, low + width, start, start + out, None, levels), str)
        assert isinstance(ops, list)
        for channel in range(CHANNELS):
            il, w, ol, o = (Fraction(entry(values, channel)) for values in (low, width, start, out))
            step = w / (levels - 1)
            for x in (
                *draws.numbers(),
                il,
                il + w,
                *(il + step * Fraction(n, 2) for n in range(-3, 2 * levels + 2)),
            ):
                wanted = round((min(max(x, il), il + w) - il) / step) * o / (levels - 1) + ol
                assert after_all(ops, x, channel, {}) == wanted, (
                    f"seed {SEED}, channel {channel}, x = {x}: {ops}"
                )


# -- into the front, and to post-ops ---------------------------------------------------------------


@pytest.mark.parametrize("name", [rule.name for rule in FOLDING])
def test_folding_holds_in_fractions(name: str) -> None:
    draws, fired = Draws(source(SEED)), 0
    for _ in range(DRAWS // 4):
        front = replace(conv(), scale=draws._scale().values, bias=draws._shift().values)
        op = draws.random.choice([draws._scale, draws._shift])()
        found = ALL[name].apply(front, op)
        if not isinstance(found, Front):
            continue
        fired += 1
        for channel in range(CHANNELS):
            for x in draws.numbers():
                before = after_all(
                    [op], front_value(front.scale, front.bias, x, channel), channel, {}
                )
                assert front_value(found.scale, found.bias, x, channel) == before, (
                    f"seed {SEED}, channel {channel}, x = {x}: {front}, {op}"
                )
    assert fired >= LEAST


@pytest.mark.parametrize("target", [V3, V2, UNIFIED], ids=lambda target: target.name)
def test_post_ops_hold_in_fractions(target: Target) -> None:
    """Constants of few bits are the same in f32; an infinite bound is the largest f32, which no
    number here reaches.
    """
    draws, placed, front = Draws(source(SEED)), 0, replace(conv(), scale=vec(1.0), bias=vec(0.0))
    more = [
        EltwiseOp("hardsigmoid", 0.25, 0.5),
        Clip(vec(-np.inf), vec(np.inf)),
        Clip(vec(0.0), vec(np.inf)),
    ]
    for _ in range(examples(DRAWS // 20).max_examples):
        ops = [op for op in draws.program() if not isinstance(op, Add) or op.zero_point != 1.5]
        if draws.random.random() < 0.2:
            ops.insert(0, draws.random.choice(more))
        found = place(target, front, DType.F32, ops)
        if isinstance(found, Refusal):
            assert target is V2
            continue
        placed += 1
        post_ops, parts, constants = found
        assert len(parts) == len(post_ops)
        held = draws.operands()
        for channel in range(CHANNELS):
            for x in (*draws.numbers(), *points(ops, channel, held)):
                wanted = after_all(ops, x, channel, held)
                got = _computed(target, front, post_ops, constants, x, channel, held)
                assert got == wanted, (
                    f"seed {SEED}, channel {channel}, x = {x}, {held}: {ops} as {post_ops}"
                )
    assert placed >= (4 * LEAST if ENOUGH else 1)


def _computed(
    target,
    front: Front,
    post_ops: tuple[PostOp, ...],
    constants: dict[str, np.ndarray],
    x: Fraction,
    channel: int,
    held,
) -> Fraction:
    composed = Composed(front.scale, front.bias, post_ops, None, None, DType.F32, constants, "")
    return composed_value(target, front, composed, x, channel, held)
