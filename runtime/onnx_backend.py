"""fqfuse as a backend of `onnx.backend`, the interface that ONNX's own test suite runs through:
`prepare`, `run_model`, `run_node`, `supports_device`, `is_compatible`.

Arrays have ONNX's own element types here, those of ml_dtypes among them (bfloat16, int4, uint4),
which travel in other types through a session (`DType.numpy`). Nothing imports this file: it stands
above the sessions that it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend as BackendBase
from onnx.backend.base import BackendRep, namedtupledict

from ..errors import FqfuseError, InvalidInput
from ..inference import InferenceSession
from ..plan.types import Plan

Runtime = Literal["auto", "numpy", "onednn"]


class Prepared(BackendRep):
    """A model that is ready to run.

    Args:
        session: of the model.
        model: says what its inputs and outputs are.
    """

    def __init__(self, session: InferenceSession, model: onnx.ModelProto) -> None:
        self.session = session
        self._inputs = tuple(value.name for value in model.graph.input)
        self._types = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by position and by name.

        Args:
            inputs: the same by name, or in the order of the model's inputs, those with an
                initializer left out or not; one array where there is one input.
            kwargs: none is known.

        Raises:
            InvalidInput: another number of inputs, or what `InferenceSession.run` raises.
        """
        if kwargs:
            raise InvalidInput(f"run has no option {', '.join(kwargs)}", hint="leave it out")
        plan = self.session.plan
        feeds = {
            name: _carried(value, plan.type(name).dtype.numpy)
            for name, value in self._by_name(inputs).items()
            if name in plan.inputs
        }
        found = self.session.run(None, feeds)
        outputs = [
            _as_stated(array, self._types.get(name, 0))
            for name, array in zip(plan.outputs, found, strict=True)
        ]
        result: tuple[Any, ...] = namedtupledict("Outputs", plan.outputs)(*outputs)
        return result

    def _by_name(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        own = self.session.plan.inputs
        for names in (own, self._inputs):
            if len(names) == len(given):
                return dict(zip(names, given, strict=True))
        raise InvalidInput(
            f"{len(given)} inputs are given, and the model has {len(own)}",
            hint=f"give an array for each of {', '.join(own)}"[:200],
        )


def _carried(value: Any, dtype: np.dtype[Any]) -> Any:
    """An array of a type that NumPy lacks, or of texts, in the type that carries it."""
    array = np.asarray(value)
    foreign = array.dtype.kind in "UV" or array.dtype.isbuiltin == 2  # registered by ml_dtypes
    return array.astype(dtype) if foreign else array


def _as_stated(array: Any, element: int) -> Any:
    """An output in the type that the model states."""
    if element in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return array
    return array.astype(helper.tensor_dtype_to_np_dtype(element), copy=False)


class OnnxBackend(BackendBase):
    """The backend; a subclass may choose a runtime of its own.

    Attributes:
        runtime: of the sessions: `auto`, `numpy` or `onednn`.
    """

    runtime: Runtime = "auto"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True of a model that compiles."""
        try:
            cls.prepare(model, device, **kwargs)
        except FqfuseError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        *,
        plan: Plan | None = None,
        backend: Runtime | None = None,
        **kwargs: Any,
    ) -> Prepared:
        """A model that is ready to run.

        Args:
            model: the model.
            device: `CPU`.
            plan: what the model was compiled to, where it was.
            backend: of the session; None: the class's `runtime`.
            kwargs: further arguments of `InferenceSession`, such as `threads`.

        Raises:
            FqfuseError: what `InferenceSession` raises, or another device.
        """
        if not cls.supports_device(device):
            raise InvalidInput(f"there is no device {device!r}", hint="use CPU")
        chosen = cls.runtime if backend is None else backend
        session = InferenceSession(model if plan is None else plan, chosen, **kwargs)
        return Prepared(session, model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a model; see `Prepared.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node.

        Args:
            node: the node.
            inputs: arrays by name or in the order of the node's inputs, absent ones left out.
            device: `CPU`.
            outputs_info: types and shapes of the outputs; they are inferred without.
            kwargs: `opset_version` of ONNX's own domain (default: the newest), and those of `prepare`.
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = list(dict.fromkeys(filter(None, node.input)))
        given = inputs if isinstance(inputs, (list, tuple, Mapping)) else [inputs]
        arrays = dict(given) if isinstance(given, Mapping) else dict(zip(names, given, strict=True))
        model = _model_of(node, arrays, opset)
        for value, (dtype, shape) in zip(model.graph.output, outputs_info or (), strict=False):
            element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, shape))
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True of CPUs."""
        return device.partition(":")[0] == "CPU"


def _model_of(node: onnx.NodeProto, arrays: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
        )
        for name, value in arrays.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, outputs)
    opsets = {"": opset} | ({node.domain: 1} if node.domain else {})
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets.items()])


is_compatible = OnnxBackend.is_compatible
prepare = OnnxBackend.prepare
run_model = OnnxBackend.run_model
run_node = OnnxBackend.run_node
supports_device = OnnxBackend.supports_device
