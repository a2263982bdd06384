"""What each trait promises, as a law that random numbers are held against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fqfuse.ir.ops import OPS
from fqfuse.ir.ops.spec import OpSpec, Trait

from .harness import Case, run_row

_NEAR = 2e-5  # sums and transcendental functions, relative to the largest value: as in harness.assert_close


def _x(case: Case, generator: np.random.Generator) -> np.ndarray:
    """Another first input like the case's own: its elements in random order (so they stay in the domain of the op)."""
    x = case.inputs[0]
    return generator.permutation(x.ravel()).reshape(x.shape)


def _run(case: Case, *changed: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return run_row(case, [*changed, *case.inputs[len(changed) :]])[0]


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    tolerance = 4e-3 if a.dtype == np.float16 else _NEAR
    largest = max(float(np.abs(v[np.isfinite(v)]).max(initial=0)) for v in (a.astype(np.float64), b.astype(np.float64)))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True))


def elementwise(case: Case, generator: np.random.Generator) -> bool:
    """A change of one element of the first input changes only the outputs that broadcast from it."""
    x = _x(case, generator)
    place = int(generator.integers(x.size))
    before = _run(case, x)
    try:
        sources = np.broadcast_to(np.arange(x.size).reshape(x.shape), before.shape)
    except ValueError:
        return False
    # Larger than all others, and one of them: what depends on the range of the whole input shows as well.
    for value in (x.max() if x.dtype.kind in "iub" else x.max() * 2 + 1, x.flat[(place + 1) % x.size]):
        other = x.copy()
        other.flat[place] = value
        after = _run(case, other)
        if not np.array_equal(before[sources != place], after[sources != place], equal_nan=before.dtype.kind == "f"):
            return False
    return True


def monotone(case: Case, generator: np.random.Generator) -> bool:
    """x <= x' gives y <= y'."""
    a, b = _x(case, generator), _x(case, generator)
    low, high = _run(case, np.minimum(a, b)), _run(case, np.maximum(a, b))
    if low.dtype.kind != "f":
        return bool((low <= high).all())
    both = ~(np.isnan(low) | np.isnan(high))
    slack = _NEAR * float(np.abs(high[both & np.isfinite(high)]).max(initial=0))
    return bool((low[both] <= high[both] + slack).all())


def layout_only(case: Case, generator: np.random.Generator) -> bool:
    """Commutes with a function that is neither monotone nor linear, bit for bit."""
    x = _x(case, generator)
    return _same_bits(_run(case, _bend(x)), _bend(_run(case, x)))


def _bend(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x  # NumPy 1 would widen arrays without dimensions, and no others
    return np.asarray(wide * wide - 3 * wide + 1).astype(x.dtype)


def selects(case: Case, generator: np.random.Generator) -> bool:
    """Every output is an element of the input, and increasing functions commute, but decreasing ones do not have to."""
    x = _x(case, generator)
    y = _run(case, x)
    rise = (x // 2) if x.dtype.kind in "iu" else (x * 3 + 1).astype(x.dtype)
    risen = (y // 2) if y.dtype.kind in "iu" else (y * 3 + 1).astype(y.dtype)
    return bool(np.isin(y, x).all()) and _same_bits(_run(case, rise), risen)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def scale_commuting(case: Case, generator: np.random.Generator) -> bool:
    """op(s*x) = s*op(x) for s > 0."""
    x, factor = _x(case, generator), np.asarray(generator.uniform(0.3, 3), case.inputs[0].dtype)
    y = _run(case, x)
    return y.dtype == x.dtype and _near(_run(case, x * factor), y * factor)


def linear(case: Case, generator: np.random.Generator) -> bool:
    """op(s*x) = s*op(x) for any s, and op(a+b) = op(a) + op(b)."""
    a, b, factor = _x(case, generator), _x(case, generator), np.asarray(generator.uniform(-3, -0.3), case.inputs[0].dtype)
    y = _run(case, a)
    if y.dtype != a.dtype:
        return False
    return _near(_run(case, a * factor), y * factor) and _near(_run(case, a + b), y + _run(case, b))


def commutative(case: Case, generator: np.random.Generator) -> bool:
    """The first two inputs may change places."""
    first, second = _x(case, generator), case.inputs[1]
    return _same_bits(_run(case, first, second), _run(case, second, first))


LAWS: dict[Trait, Callable[[Case, np.random.Generator], bool]] = {
    Trait.ELEMENTWISE: elementwise,
    Trait.MONOTONE: monotone,
    Trait.LAYOUT_ONLY: layout_only,
    Trait.SELECTS: selects,
    Trait.SCALE_COMMUTING: scale_commuting,
    Trait.LINEAR: linear,
    Trait.COMMUTATIVE: commutative,
}


def applies(case: Case, trait: Trait) -> bool:
    """True where the law can be put to the case: the first input is data, finite and not empty, of a type that the law can scale."""
    x = case.inputs[0]
    if x is None or not x.size or case.op in _ABOUT_VALUES or (x.dtype.kind == "f" and not np.isfinite(x).all()):
        return False
    if trait is Trait.COMMUTATIVE:
        return len(case.inputs) == 2 and case.op not in ("MatMul", "MatMulInteger") and _alike(OPS[case.op])
    if trait in (Trait.SCALE_COMMUTING, Trait.LINEAR):
        return x.dtype.kind == "f"  # integers wrap around and truncate
    if trait is Trait.MONOTONE and case.op in ("Add", "Sub", "CumSum"):
        return x.dtype.kind == "f"
    return x.dtype != bool or trait in (Trait.ELEMENTWISE, Trait.MONOTONE)


def _alike(spec: OpSpec) -> bool:
    """True when the op's two inputs are of one kind: data that broadcasts."""
    return spec.inputs[0].variadic or [param.name for param in spec.inputs] == ["a", "b"]


_ABOUT_VALUES = frozenset({"ConstantOfShape", "Range", "Shape", "Size"})
"""Ops whose first input is a shape or a bound, or that look at its shape only: no law says anything of them."""

NOT_CLAIMED: dict[tuple[str, Trait], str] = {
    ("BatchNormalization", Trait.ELEMENTWISE): "its vectors run along axis 1, which is not how inputs broadcast",
    ("Lookup", Trait.ELEMENTWISE): "a pass makes it at the end, of f32 chains that are done: nothing may take it up again",
    ("Expand", Trait.ELEMENTWISE): "true, but passes take it as what it is, LAYOUT_ONLY",
    ("Trilu", Trait.ELEMENTWISE): "where an element lies decides whether it stays, which no post-op knows",
    ("Div", Trait.SCALE_COMMUTING): "integers truncate",
    ("Div", Trait.LINEAR): "integers truncate",
}
"""(row, trait) that all cases have and the row does not claim -> why not."""
