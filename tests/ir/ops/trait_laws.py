"""What each trait promises, as a law that random numbers are held against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import UNCOMPUTABLE, OpSpec, Trait

from .harness import Case, run_row

# sums and transcendental functions, relative to the largest value: as in harness.assert_close
_NEAR = 2e-5


def _x(case: Case, generator: np.random.Generator) -> np.ndarray:
    """Another first input like the case's own: its elements in random order (so they stay in the
    domain of the op).
    """
    x = case.inputs[0]
    return generator.permutation(x.ravel()).reshape(x.shape)


def _run(case: Case, *changed: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return run_row(case, [*changed, *case.inputs[len(changed) :]])[0]


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    tolerance = 4e-3 if a.dtype == np.float16 else _NEAR
    largest = max(
        float(np.abs(v[np.isfinite(v)]).max(initial=0))
        for v in (a.astype(np.float64), b.astype(np.float64))
    )
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def elementwise(case: Case, generator: np.random.Generator) -> bool:
    """A change of one element of the first input changes only the outputs that broadcast from
    it.
    """
    x = _x(case, generator)
    place = int(generator.integers(x.size))
    before = _run(case, x)
    try:
        sources = np.broadcast_to(np.arange(x.size).reshape(x.shape), before.shape)
    except ValueError:
        return False
    # Larger than all others, and one of them: what depends on the range of the whole input shows as
    # well.
    for value in (
        x.max() if x.dtype.kind in "iub" else x.max() * 2 + 1,
        x.flat[(place + 1) % x.size],
    ):
        other = x.copy()
        other.flat[place] = value
        after = _run(case, other)
        if not np.array_equal(
            before[sources != place], after[sources != place], equal_nan=before.dtype.kind == "f"
        ):
            return False
    return True


def layout_only(case: Case, generator: np.random.Generator) -> bool:
    """Commutes with a function that is neither monotone nor linear, bit for bit."""
    x = _x(case, generator)
    return _same_bits(_run(case, _bend(x)), _bend(_run(case, x)))


def _bend(x: np.ndarray) -> np.ndarray:
    # NumPy 1 would widen arrays without dimensions, and no others
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    return np.asarray(wide * wide - 3 * wide + 1).astype(x.dtype)


def selects(case: Case, generator: np.random.Generator) -> bool:
    """Every output is an element of the input, and increasing functions commute, but decreasing
    ones do not have to.
    """
    x = _x(case, generator)
    y = _run(case, x)
    rise = (x // 2) if x.dtype.kind in "iu" else (x * 3 + 1).astype(x.dtype)
    risen = (y // 2) if y.dtype.kind in "iu" else (y * 3 + 1).astype(y.dtype)
    return bool(np.isin(y, x).all()) and _same_bits(_run(case, rise), risen)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    )


def scale_commuting(case: Case, generator: np.random.Generator) -> bool:
    """op(s*x) = s*op(x) for s > 0."""
    x, factor = _x(case, generator), np.asarray(generator.uniform(0.3, 3), case.inputs[0].dtype)
    y = _run(case, x)
    return y.dtype == x.dtype and _near(_run(case, x * factor), y * factor)


def commutative(case: Case, generator: np.random.Generator) -> bool:
    """The first two inputs may change places."""
    first, second = _x(case, generator), case.inputs[1]
    return _same_bits(_run(case, first, second), _run(case, second, first))


def reshapes(case: Case, generator: np.random.Generator) -> bool:
    """The elements are those of the input, in their order."""
    x = _x(case, generator)
    return _same_bits(_run(case, x).ravel(), x.ravel())


def joins(case: Case, generator: np.random.Generator) -> bool:
    """Commutes with a function of all inputs that is neither monotone nor linear, bit for bit."""
    inputs = [generator.permutation(x.ravel()).reshape(x.shape) for x in case.inputs]
    return _same_bits(_run(case, *map(_bend, inputs)), _bend(_run(case, *inputs)))


def product(case: Case, generator: np.random.Generator) -> bool:
    """Behind what is added to it: linear in each of the first two inputs, and 0 where one is."""
    x, weights = _x(case, generator), case.inputs[1]
    other, factor = (
        generator.permutation(weights.ravel()).reshape(weights.shape),
        np.asarray(-1.5, x.dtype),
    )
    added = _run(case, x, weights * 0)
    if added.dtype != x.dtype:
        return False
    y, z = _run(case, x, weights) - added, _run(case, x, other) - added
    sums = _run(case, x * factor, weights) - added, _run(case, x, weights + other) - added
    return (
        _near(_run(case, x * 0, weights), added)
        and _near(sums[0], y * factor)
        and _near(sums[1], y + z)
    )


def averages(case: Case, generator: np.random.Generator) -> bool:
    """The sum of two averages is that of the sums; what is 1 everywhere is 1, or less where padding
    counts.
    """
    a, b = _x(case, generator), _x(case, generator)
    ones = _run(case, np.ones_like(a))
    return _near(_run(case, a + b), _run(case, a) + _run(case, b)) and bool(
        ((ones > 0) & (ones <= 1 + 1e-3)).all()
    )


def keeps_zero(case: Case, generator: np.random.Generator) -> bool:  # noqa: ARG001
    """Zeros give zeros, and numbers next to 0 such numbers."""
    names = [param.name for param in OPS[case.op].inputs]
    inputs = [
        None if x is None else x * 0 if name in _ADDED else x
        for name, x in zip(names, case.inputs, strict=False)
    ]
    inputs += case.inputs[len(inputs) :]
    if OPS[case.op].inputs[0].variadic:
        inputs = [x * 0 for x in case.inputs]
    for tiny in (0.0, _TINY, -_TINY):
        with np.errstate(all="ignore"):
            y = run_row(case, [np.full_like(inputs[0], tiny), *inputs[1:]])[0]
        if y.dtype.kind != "f" or not (np.abs(y.astype(np.float64)) <= abs(tiny) * _GAIN).all():
            return False
    return True


_ADDED = frozenset({"bias", "c", "constant_value"})
_TINY, _GAIN = 2.0**-60, 2.0**10


LAWS: dict[Trait, Callable[[Case, np.random.Generator], bool]] = {
    Trait.ELEMENTWISE: elementwise,
    Trait.LAYOUT_ONLY: layout_only,
    Trait.RESHAPES: reshapes,
    Trait.SELECTS: selects,
    Trait.JOINS: joins,
    Trait.SCALE_COMMUTING: scale_commuting,
    Trait.COMMUTATIVE: commutative,
    Trait.PRODUCT: product,
    Trait.AVERAGES: averages,
    Trait.KEEPS_ZERO: keeps_zero,
}
"""What every case of a row shows that claims it."""


def tells_zero(case: Case) -> bool:
    """Some output is another, and not by little, where a 0 among the inputs is a number next to
    it.
    """
    for place, x in enumerate(case.inputs):
        if (
            x is None
            or x.dtype not in (np.float32, np.float64)
            or not x.size
            or case.op in _ABOUT_VALUES
        ):
            continue
        numbers = np.arange(x.size).reshape(x.shape)
        # some are next to 0; or all are 0 but one
        for chosen, rest in (
            (numbers % 2 == 0, x),
            (numbers == x.size - 1, np.zeros_like(x)),
        ):
            zero, *near = (
                _given(case, place, np.where(chosen, tiny, rest).astype(x.dtype))
                for tiny in (0.0, _TINY, -_TINY)
            )
            if zero is not None and not all(
                _close(y, z) for other in near if other for y, z in zip(zero, other, strict=True)
            ):
                return True
    return False


def _given(case: Case, place: int, x: np.ndarray) -> list[np.ndarray] | None:
    """What comes of a case with another input; None where the op does not take it."""
    try:
        with np.errstate(all="ignore"):
            return run_row(case, [*case.inputs[:place], x, *case.inputs[place + 1 :]])
    except UNCOMPUTABLE:
        return None


def _close(y: np.ndarray, z: np.ndarray) -> bool:
    if y.shape != z.shape or y.dtype.kind != "f":
        return np.array_equal(y, z)
    return np.allclose(
        y.astype(np.float64), z.astype(np.float64), rtol=0.02, atol=0.02, equal_nan=True
    )


def jumps(case: Case) -> bool:
    """Some output is another, and not by little, where whole numbers or halves in the first input are
    numbers next to them, or where they equal another input; all outputs are finite.
    """
    for place, x in enumerate(case.inputs[:1]):
        if (
            x is None
            or x.dtype != np.float32
            or not x.size
            or case.op in _ABOUT_VALUES
            or Trait.QUANTIZER in OPS[case.op].traits
        ):
            continue
        others = [y for y in case.inputs if y is not None and y is not x and y.shape == x.shape]
        for start in (*(np.full_like(x, c) for c in (0.0, 0.5, 1.0, 2.0)), *others):
            chosen = np.arange(x.size).reshape(x.shape) % 2 == 0
            found = [
                _given(case, place, np.where(chosen, start + tiny, start).astype(x.dtype))
                for tiny in (0.0, 2.0**-20, -(2.0**-20))
            ]
            if any(
                one is not None and not np.isfinite(y.astype(np.float64)).all()
                for one in found
                for y in one or ()
            ):
                continue
            at, *near = found
            if at is not None and not all(
                _close(y, z) for other in near if other for y, z in zip(at, other, strict=True)
            ):
                return True
    return False


def nan_below_zero(case: Case) -> bool:
    """NaN comes of numbers below 0, and of none above."""
    x = case.inputs[0]
    if x is None or x.dtype.kind != "f" or not x.size:
        return False
    above, below = (_run(case, (sign * (np.abs(x) + 0.5)).astype(x.dtype)) for sign in (1, -1))
    return below.dtype.kind == "f" and bool(np.isnan(below).any() and not np.isnan(above).any())


SHOWN: dict[Trait, Callable[[Case], bool]] = {
    Trait.TELLS_ZERO: tells_zero,
    Trait.JUMPS: jumps,
    Trait.NAN_BELOW_ZERO: nan_below_zero,
}
"""What some case of a row shows that claims it, and no case of another."""

PLANNED = frozenset({Trait.QUANTIZER, Trait.POST_OP, Trait.READS_CODES})
"""What becomes of an op: held to plans in `test_planned_traits.py`."""


def applies(case: Case, trait: Trait) -> bool:
    """True where the law can be put to the case: the first input is data, finite and not empty, of
    a type that the law can scale.
    """
    x, spec = case.inputs[0], OPS[case.op]
    if (
        x is None
        or not x.size
        or case.op in _ABOUT_VALUES
        or (x.dtype.kind == "f" and not np.isfinite(x).all())
    ):
        return False
    if trait is Trait.COMMUTATIVE:
        return len(case.inputs) == 2 and case.op not in ("MatMul", "MatMulInteger") and _alike(spec)
    if trait is Trait.JOINS:
        return spec.inputs[0].variadic
    if trait is Trait.PRODUCT:
        second = case.inputs[1] if len(case.inputs) > 1 and not spec.inputs[0].variadic else None
        return (
            x.dtype.kind == "f"
            and second is not None
            and second.dtype.kind == "f"
            and second.size > 0
        )
    if trait in (Trait.AVERAGES, Trait.KEEPS_ZERO) and spec.traits & {
        Trait.ELEMENTWISE,
        Trait.LAYOUT_ONLY,
        Trait.SELECTS,
    }:
        return False  # they have traits that say more
    if trait in (Trait.SCALE_COMMUTING, Trait.AVERAGES, Trait.KEEPS_ZERO):
        return x.dtype.kind == "f"  # integers wrap around and truncate
    return x.dtype != bool or trait in (Trait.ELEMENTWISE, Trait.RESHAPES)


def _alike(spec: OpSpec) -> bool:
    """True when the op's two inputs are of one kind: data that broadcasts."""
    return spec.inputs[0].variadic or [param.name for param in spec.inputs] == ["a", "b"]


_ABOUT_VALUES = frozenset({"ConstantOfShape", "Range", "Shape", "Size"})
"""Ops whose first input is a shape or a bound, or that look at its shape only: no law says anything
of them.
"""

NOT_CLAIMED: dict[tuple[str, Trait], str] = {
    (
        "BatchNormalization",
        Trait.ELEMENTWISE,
    ): "its vectors run along axis 1, which is not how inputs broadcast",
    **{
        (op, Trait.ELEMENTWISE): "its parameters run along an axis, or are in blocks"
        for op in ("QuantizeLinear", "DequantizeLinear")
    },
    (
        "Lookup",
        Trait.ELEMENTWISE,
    ): "a pass makes it at the end, of f32 chains that are done: nothing may take it up again",
    (
        "FakeQuantizeGrid",
        Trait.ELEMENTWISE,
    ): "true, but it is of ranges, and gives several values: no post-op",
    ("Expand", Trait.ELEMENTWISE): "true, but passes take it as what it is, LAYOUT_ONLY",
    (
        "Trilu",
        Trait.ELEMENTWISE,
    ): "where an element lies decides whether it stays, which no post-op knows",
    ("Div", Trait.SCALE_COMMUTING): "integers truncate",
    (
        "DynamicBlocks",
        Trait.SCALE_COMMUTING,
    ): "true but for rounding: it stays where a pass has put it, in front of its product",
    ("Identity", Trait.RESHAPES): "true, and passes drop it: its shape is no other",
    ("Mul", Trait.PRODUCT): "it goes by element and sums nothing",
    **{
        (f"{of}Normalization", Trait.KEEPS_ZERO): "it divides by what may be as small"
        for of in ("Layer", "RMS", "Instance", "Group")
    },
    ("LRN", Trait.KEEPS_ZERO): "true, and no primitive has a chain behind it",
    ("Resize", Trait.AVERAGES): "of neighbours, not of a window",
    (
        "ReduceMean",
        Trait.AVERAGES,
    ): "along axes: it has no windows, and no primitive takes codes for it",
}
"""(row, trait) that all cases have and the row does not claim -> why not."""

NOT_TOLD: dict[str, str] = {
    "Cast": "to truth values only: who asks looks at its attribute",
    "Quantize": "only where a zero point is half an integer: a tie, as there are others",
}
"""Rows of which some case shows a trait of `SHOWN` that the row does not claim -> why not."""
