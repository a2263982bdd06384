"""What the bare library gives where int8 products of pairs are added in 16 bits: every pair of data
times every pair of weights, under ONEDNN_MAX_CPU_ISA, against Python's integers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library

TESTS = Path(__file__).parents[1]

UNSIGNED = [(0, 255), (255, 255), (127, 127), (128, 200), (255, 1)]
SIGNED = [(127, 127), (-128, -128), (-64, 63), (63, 63), (-1, -1), (-128, -1), (100, -100)]
WEIGHTS = [(127, 127), (-128, -128), (127, -128), (64, 64), (63, -64), (-64, -64), (1, 3), (5, 0)]

SCRIPT = """
import json, sys
import numpy as np
from fqfuse.onednn.enums import Arg, DataType
from fqfuse.onednn.library import Engine, Stream
from fqfuse.onednn.loading import load
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import describe
from support.binding_order import Runner

data, weights = (np.array(pairs) for pairs in json.loads(sys.argv[1]))
signed = bool((data < 0).any())
library = load()
engine = Engine(library)
run = Runner(engine, Stream(engine))

def made(kind, src, second, dst, **window):
    # each pair in a row of its own, 62 zeros behind it: no other pair adds anything
    shapes = ((src, DataType.s8 if signed else DataType.u8), (second, DataType.s8))
    operands = [MemoryDesc.any(library, array.shape, dtype) for array, dtype in shapes]
    desc = describe(engine, kind, *operands, None, MemoryDesc.any(library, dst, DataType.s32), **window)
    return run(desc, {Arg.SRC: src, Arg.WEIGHTS: second})

x = np.zeros((len(data), 64), np.int8 if signed else np.uint8)
x[:, :2] = data
w = np.zeros((len(weights), 64), np.int8)
w[:, :2] = weights
size, zeros = (len(data), len(weights)), (0, 0)
matmul = made("matmul", x, np.ascontiguousarray(w.T), size)
window = {"strides": (1, 1), "dilations": zeros, "padding_l": zeros, "padding_r": zeros}
shape = (*size, 1, 1)
convolution = made("convolution", x[..., None, None], w[..., None, None], shape, **window)
print(json.dumps({"matmul": matmul.tolist(), "convolution": convolution.reshape(size).tolist()}))
"""

Pair = tuple[int, int]
WITHOUT = pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])


@cache
def answers(isa: str, *, signed: bool) -> dict[str, list[list[int]]]:
    """Primitive -> the sum for each pair of data and each pair of weights."""
    pairs = json.dumps([SIGNED if signed else UNSIGNED, WEIGHTS])
    environment = {
        **os.environ,
        "ONEDNN_MAX_CPU_ISA": isa,
        "PYTHONPATH": str(TESTS),
        "OPENBLAS_NUM_THREADS": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, pairs],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(ran.stdout)


def exact(x: Pair, w: Pair) -> int:
    return x[0] * w[0] + x[1] * w[1]


def saturated(x: Pair, w: Pair) -> int:
    """VPMADDUBSW: the sum of the two products in s16."""
    return min(max(exact(x, w), -(2**15)), 2**15 - 1)


def shifted(x: Pair, w: Pair) -> int:
    """s8 data as u8, 128 more each, and 128 times the weights taken off again."""
    return saturated((x[0] + 128, x[1] + 128), w) - 128 * sum(w)


def halved(x: Pair, w: Pair) -> int:
    """The weights times 0.5, half to even, and the sum times 2."""
    return 2 * shifted(x, (round(w[0] / 2), round(w[1] / 2)))


def holds(
    library: Library, isa: str, primitive: str, data: list[Pair], law: Callable[[Pair, Pair], int]
) -> int:
    """Holds an instruction set's sums to a law; how many of them are not the exact ones."""
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    found = answers(isa, signed=data is SIGNED)[primitive]
    expected = [[law(x, w) for w in WEIGHTS] for x in data]
    assert found == expected
    return sum(law(x, w) != exact(x, w) for x, w in product(data, WEIGHTS))


@WITHOUT
@pytest.mark.parametrize("primitive", ["matmul", "convolution"])
def test_a_pair_of_products_of_u8_and_s8_saturates_in_16_bits(
    library: Library, isa: str, primitive: str
) -> None:
    """On SSE41 as well: oneDNN 3.2 has no int8 code there that adds in 32 bits."""
    assert holds(library, isa, primitive, UNSIGNED, saturated) > 0
    assert saturated((255, 255), (127, 127)) == 32767
    assert exact((255, 255), (127, 127)) == 64770


@WITHOUT
def test_codes_of_7_bits_on_either_side_do_not_saturate(library: Library, isa: str) -> None:
    holds(library, isa, "matmul", UNSIGNED, saturated)
    for x, w in product(UNSIGNED, WEIGHTS):
        if max(x) <= 127 or (min(w) >= -64 and max(w) <= 63):
            assert saturated(x, w) == exact(x, w), "what the library gave is the exact sum"


@WITHOUT
def test_a_matrix_product_of_s8_and_s8_saturates_behind_its_shift(
    library: Library, isa: str
) -> None:
    """The compensation is taken off the saturated sum, which is far from the exact one then."""
    assert holds(library, isa, "matmul", SIGNED, shifted) > 0
    assert shifted((127, 127), (127, 127)) == 255
    assert exact((127, 127), (127, 127)) == 32258


@WITHOUT
def test_of_s8_and_s8_only_the_second_operand_helps_by_7_bits(library: Library, isa: str) -> None:
    """The first one is shifted by 128: its codes would have to lie in -128..-1."""
    holds(library, isa, "matmul", SIGNED, shifted)
    for x, w in product(SIGNED, WEIGHTS):
        if max(x) <= -1 or (min(w) >= -64 and max(w) <= 63):
            assert shifted(x, w) == exact(x, w)
    assert shifted((63, 63), (127, 127)) != exact((63, 63), (127, 127)), "though 63 has 7 bits"


@WITHOUT
def test_a_convolution_of_s8_halves_its_weights(library: Library, isa: str) -> None:
    """Nothing saturates then, and odd weights are off by one."""
    assert holds(library, isa, "convolution", SIGNED, halved) > 0
    for x, w in product(SIGNED, WEIGHTS):
        assert abs(halved(x, w) - exact(x, w)) <= abs(x[0]) + abs(x[1])


@pytest.mark.parametrize("isa", ["AVX2_VNNI", "AVX512_CORE_VNNI"])
@pytest.mark.parametrize("primitive", ["matmul", "convolution"])
@pytest.mark.parametrize("data", [UNSIGNED, SIGNED], ids=["u8", "s8"])
def test_with_vnni_every_sum_is_exact(
    library: Library, isa: str, primitive: str, data: list[Pair]
) -> None:
    assert holds(library, isa, primitive, data, exact) == 0
