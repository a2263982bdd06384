"""Chains without weights, of any length: elementwise operations, quantizers, moved data; wide
graphs. For the growth of compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from fqfuse.measure.arrays import Array

from .writer import OPSET

PLAIN_SHAPE = (1, 4, 4, 4)
_FAKE_QUANTIZE = "org.openvinotoolkit"
_ZERO = np.uint8(3)


@dataclass
class _Chain:
    """A chain in the making: its nodes, its constants, and the value at its end."""

    rng: np.random.Generator
    value: str = "input"
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, op: str, *others: str, domain: str = "", **attributes: object) -> str:
        """One node more, which reads the end of the chain first; its output is the new end."""
        return self.put(op, [self.value, *others], domain=domain, **attributes)

    def put(self, op: str, inputs: list[str], domain: str = "", **attributes: object) -> str:
        """One node more, of any inputs."""
        name = f"n{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, inputs, [f"{name}_out"], name, domain=domain, **attributes)
        )
        self.value = f"{name}_out"
        return self.value

    def constant(self, value: Array | float, name: str = "") -> str:
        """A constant, under a name of its own or a shared one."""
        name = name or f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, np.float32) if isinstance(value, float) else value
        return name

    def near(self, value: float) -> str:
        """A constant within 10 % of a value."""
        return self.constant(float(value * self.rng.uniform(0.9, 1.1)))

    def quantize(self, scale: str, zero: np.uint8 | np.int8 = _ZERO) -> None:
        """QuantizeLinear and DequantizeLinear, two nodes."""
        zero_point = self.constant(np.array(zero), f"zero_point_{zero.dtype}")
        self.add("QuantizeLinear", scale, zero_point)
        self.add("DequantizeLinear", scale, zero_point)


_Link = Callable[[_Chain, int], object]


def _repeated(link: _Link, chain: _Chain, nodes: int) -> None:
    """Links until there are so many nodes more."""
    end, number = len(chain.nodes) + nodes, 0
    while len(chain.nodes) < end:
        link(chain, number)
        number += 1


def _affine(chain: _Chain, number: int) -> None:
    chain.add(("Mul", "Add")[number % 2], chain.near(1.0))


def _mul_relu_add(chain: _Chain, number: int) -> None:
    chain.add("Relu") if number % 3 == 1 else _affine(chain, number)


def _equal_pairs(chain: _Chain, _: int) -> None:
    chain.quantize(chain.constant(0.02, "scale"))


def _different_pairs(chain: _Chain, _: int) -> None:
    chain.quantize(chain.near(0.02))


def _pairs_and_relus(chain: _Chain, _: int) -> None:
    chain.quantize(chain.near(0.02))
    chain.add("Relu")


def _fake_quantizers(chain: _Chain, _: int) -> None:
    low, high = chain.constant(0.0, "low"), chain.near(4.0)
    chain.add("FakeQuantize", low, high, low, high, domain=_FAKE_QUANTIZE, levels=256)


def _reshapes(chain: _Chain, number: int) -> None:
    shape = (1, 4, 16) if number % 2 == 0 else PLAIN_SHAPE
    chain.add("Reshape", chain.constant(np.array(shape, np.int64), f"shape{number % 2}"))
    chain.add("Sigmoid")


def _transposed_codes(chain: _Chain, _: int) -> None:
    chain.quantize(chain.constant(0.02, "scale"))
    chain.add("Transpose", perm=[0, 2, 3, 1])


def _joined_signs(chain: _Chain, number: int) -> None:
    """Codes of the other sign are joined to what there is, and that is cut out again."""
    if number == 0:
        chain.quantize(chain.constant(0.02, "scale"))
    before = chain.value
    chain.put("Mul", ["input", chain.near(1.0)])
    chain.quantize("scale", np.int8(int(_ZERO) - 128))
    chain.put("Concat", [before, chain.value], axis=1)
    chain.add("Slice", *(chain.constant(np.array([at], np.int64), f"at{at}") for at in (0, 4, 1)))


def _shared(chain: _Chain, nodes: int) -> None:
    side = chain.add("Tanh")
    _repeated(lambda chain, _: chain.add("Add", side), chain, nodes)


def _many_readers(chain: _Chain, nodes: int) -> None:
    read = chain.value
    found = [chain.put("Mul", [read, chain.near(1.0)]) for _ in range(nodes)]
    chain.put("Concat", found, axis=1)


def _many_activations(chain: _Chain, nodes: int) -> None:
    chain.quantize(chain.constant(0.02, "scale"))
    read = chain.value
    found = [chain.put(("Relu", "Sigmoid", "Tanh")[number % 3], [read]) for number in range(nodes)]
    chain.put("Concat", found, axis=1)


def _many_pieces(chain: _Chain, nodes: int) -> None:
    whole = chain.put("Concat", [chain.value] * nodes, axis=0)
    pieces = [f"piece{number}" for number in range(nodes)]
    chain.nodes.append(helper.make_node("Split", [whole], pieces, "split", axis=0))
    chain.put("Concat", pieces, axis=1)


def _links(link: _Link) -> Callable[[_Chain, int], None]:
    return partial(_repeated, link)


PLAIN_CHAINS: Mapping[str, Callable[[_Chain, int], None]] = {
    "relu": _links(lambda chain, _: chain.add("Relu")),
    "sigmoid": _links(lambda chain, _: chain.add("Sigmoid")),
    "mul-add": _links(_affine),
    "mul-relu-add": _links(_mul_relu_add),
    "equal-qdq": _links(_equal_pairs),
    "different-qdq": _links(_different_pairs),
    "qdq-relu": _links(_pairs_and_relus),
    "fake-quantize": _links(_fake_quantizers),
    "reshape-sigmoid": _links(_reshapes),
    "qdq-transpose": _links(_transposed_codes),
    "joined-signs": _links(_joined_signs),
    "shared-operand": _shared,
    "many-readers": _many_readers,
    "many-activations": _many_activations,
    "many-pieces": _many_pieces,
}
"""What is repeated, by name."""


def build_plain_chain(
    kind: str, nodes: int, seed: int = 0, *, behind_convolution: bool = False
) -> onnx.ModelProto:
    """Return ``input`` f32 [1, 4, 4, 4] through about that many nodes of a kind of `PLAIN_CHAINS`
    to ``output``.

    ``behind_convolution``: a convolution of codes stands in front, whose post-ops the chain may
    become.
    """
    chain = _Chain(np.random.default_rng(seed))
    if behind_convolution:
        _convolution(chain)
    PLAIN_CHAINS[kind](chain, nodes)
    chain.nodes[-1].output[0] = "output"
    infos = [
        helper.make_tensor_value_info("input", TensorProto.FLOAT, PLAIN_SHAPE),
        onnx.ValueInfoProto(name="output"),
    ]
    graph = helper.make_graph(
        chain.nodes, f"{kind}{nodes}", infos[:1], infos[1:], list(_tensors(chain))
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_FAKE_QUANTIZE, 1)]
    return helper.make_model(
        graph, opset_imports=opsets, producer_name="fqfuse-benchmarks", ir_version=8
    )


def _convolution(chain: _Chain) -> None:
    chain.quantize(chain.constant(0.03, "source_scale"))
    source = chain.value
    weights = chain.constant(chain.rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8))
    decoded = chain.put("DequantizeLinear", [weights, chain.constant(0.005, "weight_scale")])
    chain.put("Conv", [source, decoded], pads=[1, 1, 1, 1])


def _tensors(chain: _Chain) -> Iterator[TensorProto]:
    return (numpy_helper.from_array(value, name) for name, value in chain.constants.items())
