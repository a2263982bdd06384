"""GEMM by functions, on NumPy and on the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.codes import emulated

from fqfuse.errors import InvalidInput
from fqfuse.onednn.library import Library
from fqfuse.primitives import gemm_s8s8s32, gemm_u8s8s32, sgemm

FUNCTIONS = {np.uint8: gemm_u8s8s32, np.int8: gemm_s8s8s32}
FACTORS = (0.0, 1.0, -1.0, 0.5, 0.37, 3.0e5)


def _whole(rng: np.random.Generator, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def _case(rng: np.random.Generator, dtype: type) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Sizes small, and now and then large enough for several blocks of the inner one."""
    m, n = (int(rng.integers(1, 40)) for _ in range(2))
    k = int(rng.choice([1, 2, 3, 17, 64, 300, 5000]))
    turned = [bool(rng.integers(2)) for _ in range(2)]
    a = _whole(rng, dtype, (k, m) if turned[0] else (m, k))
    b = _whole(rng, np.int8, (n, k) if turned[1] else (k, n))
    c = rng.integers(-1000, 1001, (m, n)).astype(np.int32)
    offsetc = str(rng.choice(list("FCR")))
    count = {"F": 1, "C": m, "R": n}[offsetc]
    options = {
        "trans_a": turned[0],
        "trans_b": turned[1],
        "alpha": float(rng.choice(FACTORS)),
        "beta": float(rng.choice(FACTORS)),
        "ao": int(rng.choice([0, _whole(rng, dtype, ())])),
        "bo": int(rng.choice([0, _whole(rng, np.int8, ())])),
        "co": rng.integers(-99, 100, count).astype(np.int32),
        "offsetc": offsetc,
    }
    return [a, b, c], options


@pytest.mark.usefixtures("of_the_rules")
@pytest.mark.parametrize("dtype", FUNCTIONS)
def test_integers_are_the_librarys(dtype: type, library: Library) -> None:
    """With AMX the library cuts sums that factors apply to otherwise, and rounds, or saturates, each part: those
    on NumPy are of VNNI.
    """
    function, tiles = FUNCTIONS[dtype], library.effective_isa().has_amx
    for seed in range(200):
        args, options = _case(np.random.default_rng(seed), dtype)
        found = [
            function(*args, **options, isa=emulated()),
            function(*args, **options, engine="onednn"),
        ]
        factors = options["alpha"], options["beta"]
        plain = factors in ((1, 0), (1, 1))
        if tiles and max(factors) > 1:  # may saturate
            continue
        apart = np.abs(np.subtract(*found, dtype=np.int64)).max()
        assert apart <= (2 if tiles and not plain else 0), (seed, [a.shape for a in args], options)


def test_the_formula() -> None:
    a, b = np.array([[3, 250]], np.uint8), np.array([[1, -2], [4, 100]], np.int8)
    found = gemm_u8s8s32(
        a,
        b,
        np.array([[10, 20]], np.int32),
        alpha=0.5,
        beta=2.0,
        ao=2,
        bo=-1,
        co=np.array([7, -7], np.int32),
        offsetc="R",
    )
    # (1, 248) times ((2, -1), (5, 101)): 1242 and 25047
    assert found.tolist() == [[621 + 20 + 7, 12564 - 7]]
    assert found.dtype == np.int32


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_the_extremes(engine: str, library: Library) -> None:
    # a pair of products with -64 does not saturate without VNNI
    least = -128 if engine == "numpy" or library.effective_isa().has_vnni else -64
    a, b = np.full((2, 64), 255, np.uint8), np.full((64, 3), least, np.int8)
    assert (gemm_u8s8s32(a, b, engine=engine) == 64 * 255 * least).all()
    assert (gemm_u8s8s32(a, b, alpha=1e6, engine=engine) == -(2**31)).all()
    nothing = gemm_u8s8s32(a[:, :0], b[:0], np.ones((2, 3), np.int32), beta=5.0, engine=engine)
    assert (nothing == 1).all()


@pytest.mark.usefixtures("library")
def test_f32() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        m, n, k = (int(rng.integers(1, 30)) for _ in range(3))
        turned = [bool(rng.integers(2)) for _ in range(2)]
        a = rng.integers(-9, 10, (k, m) if turned[0] else (m, k)).astype(np.float32)
        b = rng.integers(-9, 10, (n, k) if turned[1] else (k, n)).astype(np.float32)
        c = rng.integers(-9, 10, (m, n)).astype(np.float32)
        words = dict(zip(("trans_a", "trans_b"), turned, strict=True))
        words |= {"alpha": float(rng.choice([1, 0.5, -2])), "beta": float(rng.choice([0, 1, 0.25]))}
        found = [sgemm(a, b, c, **words, engine=engine) for engine in ("numpy", "onednn")]
        assert np.array_equal(*found)
        op = [x.T if t else x for x, t in zip((a, b), turned, strict=True)]
        assert np.array_equal(found[0], words["alpha"] * (op[0] @ op[1]) + words["beta"] * c)


@pytest.mark.parametrize("engine", ["numpy", "onednn"])
def test_what_c_holds_does_not_count_without_beta(engine: str, library: Library) -> None:  # noqa: ARG001
    ones = np.ones((2, 2), np.float32)
    assert (sgemm(ones, ones, np.full((2, 2), np.nan, np.float32), engine=engine) == 2).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"a": np.zeros((2, 3), np.int8)}, "a is int8"),
        ({"b": np.zeros((4, 2), np.int8)}, r"\[2, 3\] times \[4, 2\]"),
        ({"c": np.zeros((2, 3), np.int32)}, r"into int32\[2, 3\]"),
        ({"c": np.zeros((2, 2), np.int64)}, "into int64"),
        ({"ao": 256}, "ao is 256"),
        ({"bo": 128}, "bo is 128"),
        ({"offsetc": "X"}, "no offsetc 'X'"),
        ({"co": np.zeros(3, np.int32), "offsetc": "C"}, r"co is int32\[3\]"),
        ({"engine": "gpu"}, "no engine 'gpu'"),
    ],
)
def test_words_that_are_wrong(words: dict[str, Any], told: str) -> None:
    given = {"a": np.zeros((2, 3), np.uint8), "b": np.zeros((3, 2), np.int8), **words}
    with pytest.raises(InvalidInput, match=told):
        gemm_u8s8s32(given.pop("a"), given.pop("b"), given.pop("c", None), **given)
