"""What is read of a value alone is computed alone: random graphs whose end is cut, on each runtime,
against ONNX Runtime, which computes all of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.budget import ENOUGH, examples, shard
from laws.runtimes import RUNTIMES
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.frontend import graph_from_onnx
from fqfuse.passes.move_slice import MOVE_SLICE

PARTS = 4
WIDTH = 4


class Drawn:
    """A model that is drawn operation by operation; the last value has shape `shape`, whose first
    two sizes may be symbols.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sizes = {"N": random.randint(1, 3), "S": random.randint(2, 5)}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, object] = {}
        self.shape: list[int | str] = [
            random.choice([name, name, size]) for name, size in self.sizes.items()
        ]
        self.shape.append(WIDTH)
        self.inputs = {"x": list(self.shape)}
        self.value = "x"
        self.values = [("x", tuple(self.shape))]

    def constant(self, array: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def floats(self, *shape: int) -> str:
        numbers = [self.random.uniform(-1, 1) for _ in range(int(np.prod(shape)))]
        return self.constant(np.asarray(numbers, np.float32).reshape(shape))

    def op(self, op: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        value = f"v{len(self.nodes)}"
        self.nodes.append(node(op, [*inputs], [value], name=value, domain=domain, **attrs))
        self.value = value
        return value

    def grown(self) -> None:
        """One operation more."""
        kinds = [
            self.product,
            self.product,
            self.normalized,
            self.softmax,
            self.element,
            self.operand,
            self.residual,
            self.turned,
            self.split,
            self.joined,
            self.part,
            self.halved,
            self.crossed,
            self.longer,
            self.picked,
        ]
        if self.shape:
            self.random.choice(kinds)()
        self.values.append((self.value, tuple(self.shape)))

    def last(self) -> int:
        size = self.shape[-1]
        assert isinstance(size, int)
        return size

    def product(self) -> None:
        width, rows = self.random.choice([2, 4, 6]), self.shape[-1]
        if not isinstance(rows, int):
            return
        self.op("MatMul", self.value, self.floats(rows, width))
        self.shape[-1] = width

    def normalized(self) -> None:
        if isinstance(self.shape[-1], int):
            scale, bias = self.floats(self.last()), self.floats(self.last())
            # a small epsilon would multiply the rounding of a nearly constant row by hundreds
            self.op("LayerNormalization", self.value, scale, bias, axis=-1, epsilon=0.1)

    def softmax(self) -> None:
        axis = self.random.choice([-1, -1, *range(len(self.shape))])
        self.op("Softmax", self.value, axis=axis)

    def element(self) -> None:
        self.op(self.random.choice(["Relu", "Tanh", "Gelu", "Neg", "Sigmoid"]), self.value)

    def operand(self) -> None:
        shape = [
            size if isinstance(size, int) and self.random.random() < 0.5 else 1
            for size in self.shape
        ]
        shape = shape[self.random.randrange(len(shape)) :]
        self.op(self.random.choice(["Add", "Mul", "Sub"]), self.value, self.floats(*shape))

    def residual(self) -> None:
        fits = [value for value, shape in self.values if shape == tuple(self.shape)]
        if fits:
            self.op("Add", self.random.choice(fits), self.value)

    def quantized(self) -> None:
        """Codes of a step of 2^-6; where they come from sums of f32, one may lie beside its
        neighbour.
        """
        axis = self.random.choice([None, *range(len(self.shape))])
        sizes: list[int] = []
        if axis is not None:
            size = self.shape[axis]
            if not isinstance(size, int):
                return
            sizes = [size]
        scale = self.constant(np.full(sizes, 2.0**-6, np.float32))
        zero = self.constant(np.full(sizes, self.random.randrange(100, 150), np.uint8))
        attrs = {} if axis is None else {"axis": axis}
        self.op("QuantizeLinear", self.value, scale, zero, **attrs)
        self.op("DequantizeLinear", self.value, scale, zero, **attrs)

    def turned(self) -> None:
        perm = list(range(len(self.shape)))
        self.random.shuffle(perm)
        self.op("Transpose", self.value, perm=perm)
        self.shape = [self.shape[axis] for axis in perm]

    def split(self) -> None:
        """Heads, or the like: the last axis in two, or the last two in one."""
        last = self.shape[-1]
        if isinstance(last, int) and last % 2 == 0 and len(self.shape) < 5:
            self.shape[-1:] = [2, last // 2]
        elif len(self.shape) > 3 and all(isinstance(size, int) for size in self.shape[-2:]):
            self.shape[-2:] = [int(self.shape[-2]) * int(self.shape[-1])]
        else:
            return
        target = [0 if isinstance(size, str) else size for size in self.shape]
        self.op("Reshape", self.value, self.constant(np.asarray(target, np.int64)))

    def joined(self) -> None:
        axis = self.random.randrange(len(self.shape))
        size = self.shape[axis]
        if isinstance(size, int) and size < 16:
            other = self.value
            if self.random.random() < 0.5:
                other = self.op("Neg", self.value)
            self.op("Concat", self.value, other, axis=axis)
            self.shape[axis] = 2 * size

    def part(self) -> None:
        axis = self.random.randrange(len(self.shape))
        size = self.shape[axis]
        if isinstance(size, int) and size > 1:
            ends = (self.constant(np.asarray([at], np.int64)) for at in (1, size, axis))
            self.op("Slice", self.value, *ends)
            self.shape[axis] = size - 1

    def halved(self) -> None:
        """One result of several: a Split's first or last, or both, added up."""
        axis = self.random.randrange(len(self.shape))
        size = self.shape[axis]
        if not isinstance(size, int) or size % 2:
            return
        first, last = f"v{len(self.nodes)}/first", f"v{len(self.nodes)}/last"
        sizes = self.constant(np.full(2, size // 2, np.int64))
        self.nodes.append(node("Split", [self.value, sizes], [first, last], name=first, axis=axis))
        self.value, self.shape[axis] = self.random.choice([first, last]), size // 2
        if self.random.random() < 0.3:
            self.op("Add", first, last)

    def crossed(self) -> None:
        """A value and what it is with two axes of one size swapped."""
        pairs = itertools.combinations(range(len(self.shape)), 2)
        same = [(a, b) for a, b in pairs if self.shape[a] == self.shape[b]]
        if same:
            a, b = self.random.choice(same)
            perm = list(range(len(self.shape)))
            perm[a], perm[b] = b, a
            value = self.value
            self.op("Add", value, self.op("Transpose", value, perm=perm))

    def longer(self) -> None:
        """An axis of one element more, or one of them less."""
        ones = [axis for axis, size in enumerate(self.shape) if size == 1]
        if ones and self.random.random() < 0.5:
            axis = self.random.choice(ones)
            given = [self.constant(np.asarray([axis], np.int64))]
            alone = len(ones) == 1 and not any(isinstance(size, str) for size in self.shape)
            self.op("Squeeze", self.value, *([] if alone else given))
            del self.shape[axis]
        elif len(self.shape) < 6:
            axis = self.random.randint(0, len(self.shape))
            self.op("Unsqueeze", self.value, self.constant(np.asarray([axis], np.int64)))
            self.shape.insert(axis, 1)

    def picked(self) -> None:
        """Positions of an axis, by indices of 0 to 2 dimensions."""
        axis = self.random.randrange(len(self.shape))
        size, rank = self.shape[axis], self.random.randrange(3)
        if isinstance(size, int) and size > 1 and len(self.shape) + rank < 7:
            index = np.full([1] * rank, self.random.randrange(-size, size), np.int64)
            self.op("Gather", self.value, self.constant(index), axis=axis)
            self.shape[axis : axis + 1] = index.shape

    def cut(self) -> None:
        """What is read of the end."""
        if not self.shape:
            return
        axis = self.random.randrange(len(self.shape))
        size = self.shape[axis]
        size = self.sizes[size] if isinstance(size, str) else size
        start = self.random.randrange(-size, size)
        if self.random.random() < 0.5:
            index = self.random.choice([np.int64(start), np.asarray([start], np.int64)])
            self.op("Gather", self.value, self.constant(index), axis=axis)
        else:
            end = start + 1 if start != -1 else np.iinfo(np.int64).max
            given = (start, end, axis, self.random.choice([1, 1, 2]))
            self.op(
                "Slice", self.value, *(self.constant(np.asarray([at], np.int64)) for at in given)
            )


def drawn(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], float]:
    """A model, what it is fed, and how far its results may be off."""
    random = Random(seed)  # noqa: S311 - reproducible on purpose
    net, bound = Drawn(random), 2e-5  # sums of some f32 in another order, normalized
    if random.random() < 0.4:
        net.quantized()
    for _ in range(random.randint(2, 9)):
        net.grown()
    if random.random() < 0.4:
        net.quantized()
        bound += 2.0**-6
    net.cut()
    if random.random() < 0.3:
        net.op("Relu", net.value)
    outputs = [net.value]
    if random.random() < 0.2:
        outputs.append(random.choice(net.values)[0])
    outputs = [name for name in dict.fromkeys(outputs) if name != "x"]
    built = model(net.nodes, inputs=net.inputs, outputs=outputs, constants=net.constants)
    sizes = [net.sizes.get(size, size) for size in net.inputs["x"]]
    x = np.random.default_rng(seed).standard_normal(sizes).astype(np.float32)
    return built, {"x": x}, bound


def hold(seed: int) -> bool:
    """Whether the pass had something to do; fails where the results are not ONNX Runtime's."""
    built, feeds, bound = drawn(seed)
    expected = run_ort(built, feeds)
    for runtime in RUNTIMES:
        found = fqfuse.InferenceSession(built, runtime).run(None, feeds)
        for mine, wanted in zip(found, expected, strict=True):
            assert mine.shape == wanted.shape
            far = bound * max(1, np.abs(wanted).max(initial=0))
            np.testing.assert_allclose(mine, wanted, rtol=0, atol=far)
    graph = graph_from_onnx(built)
    MOVE_SLICE.run(graph)
    return any(decision.rule == MOVE_SLICE.name for decision in graph.decisions)


@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(PARTS))
def test_cut_graphs(part: int) -> None:
    counts: Counter[bool] = Counter()

    @shard(part)
    @examples(100, fuzz=5000)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        counts[hold(seed)] += 1

    run()
    assert not ENOUGH or counts[True] > counts.total() // 10, counts
