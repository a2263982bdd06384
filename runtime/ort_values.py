"""ONNX Runtime's `OrtValue` and `IOBinding` on the CPU: arrays under other names, and what a run reads and writes."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, cast

import numpy as np

from ..errors import InvalidInput
from ..ir.element_types import DTYPES, ELEMENT_TYPES
from ..ir.ops.spec import Array
from .foreign_types import dtype_of, foreign_type
from .like_onnxruntime import NodeArg, type_name, without

_SPARSE = "sparse tensors are not there: give the dense array"


class Session(Protocol):
    """What of a session is asked here."""

    def run(self, output_names: Any, feeds: Any, run_options: object) -> list[Any]:
        """Runs the model."""
        ...

    def get_inputs(self) -> list[NodeArg]:
        """Its inputs."""
        ...

    def get_outputs(self) -> list[NodeArg]:
        """Its outputs."""
        ...


@without(as_sparse_tensor=_SPARSE, ort_value_from_sparse_tensor=_SPARSE)
class OrtValue:
    """A tensor in the memory of the CPU.

    Args:
        value: an array, which is shared.
    """

    def __init__(self, value: Array) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Self:
        """The array itself, not a copy.

        Raises:
            InvalidInput: it is no array, or for another device.
        """
        _check_device(device_type, device_id, vendor_id)
        if not isinstance(numpy_obj, np.ndarray):
            raise InvalidInput(
                f"a {type(numpy_obj).__name__} is no array", hint="give numpy.asarray(values)"
            )
        dtype_of(numpy_obj)
        return cls(np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> Self:
        """The bits of an array as elements of another type of the same size, by its number in ONNX.

        Raises:
            InvalidInput: there is no such type, or it has another size.
        """
        wanted = _numpy_type(onnx_element_type)
        if wanted.itemsize != data.dtype.itemsize:
            raise InvalidInput(
                f"elements of {data.dtype} are no bits of {wanted}",
                hint="give an array of as many bytes an element",
            )
        return cls(data.view(wanted))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: object = None,
    ) -> Self:
        """An array to be written, of zeros.

        Raises:
            InvalidInput: no such type or shape, or another device.
        """
        _check_device(
            device_type if memory_info is None else "of memory_info", device_id, vendor_id
        )
        try:
            return cls(np.zeros(tuple(shape), _numpy_type(element_type)))
        except (ValueError, TypeError, MemoryError) as error:
            raise InvalidInput(
                f"there is no array of shape {shape!r:.200}: {error}", hint="give a list of sizes"
            ) from error

    @classmethod
    def from_dlpack(cls, data: Any, /) -> Self:
        """A tensor of another library, whose memory is shared."""
        return cls.ortvalue_from_numpy(np.from_dlpack(data))

    def numpy(self) -> Array:
        """The array itself."""
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype, copy=copy) if copy else np.asarray(self.numpy(), dtype)

    def __dlpack__(self, **options: Any) -> Any:
        array: Any = self.numpy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        array: Any = self.numpy()
        device: tuple[int, int] = array.__dlpack_device__()
        return device

    def update_inplace(self, data: Any) -> None:
        """Writes other values into the same memory.

        Raises:
            InvalidInput: they have another shape or type.
        """
        write(self.numpy(), np.asarray(data), "the value")

    def shape(self) -> list[int]:
        """The sizes of its dimensions."""
        return list(self.numpy().shape)

    def data_type(self) -> str:
        """`tensor(float)`, say."""
        return type_name(dtype_of(self._value))

    def element_type(self) -> int:
        """The number of the type of its elements in ONNX."""
        return ELEMENT_TYPES[dtype_of(self.numpy())]

    def data_ptr(self) -> int:
        """The address of its first element."""
        address: int = self.numpy().__array_interface__["data"][0]
        return address

    def tensor_size_in_bytes(self) -> int:
        """The bytes of its elements."""
        return self.numpy().nbytes

    def device_name(self) -> str:
        """`cpu`."""
        return "cpu"

    def has_value(self) -> bool:
        """True."""
        return True

    def is_tensor(self) -> bool:
        """True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """False."""
        return False


@without(
    get_outputs_as_ortvaluevector="binding.get_outputs() is a list of the same values",
)
class IOBinding:
    """What runs of a session read, and where they write.

    Args:
        session: the session.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._found: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """An array is read as it is in the moment of a run."""
        self._check(name, self.session.get_inputs(), "input")
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """The same of a value."""
        self.bind_cpu_input(name, ortvalue)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """The same of memory, which has to stay."""
        _check_device(device_type, device_id)
        self.bind_cpu_input(name, _at(buffer_ptr, element_type, shape, name))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """An output is computed, and written into memory where its address is given."""
        _check_device(device_type, device_id)
        self._check(name, self.session.get_outputs(), "output")
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InvalidInput(
                "the memory for an output has no type or no shape",
                where=f"output {name}",
                hint="give element_type and shape with buffer_ptr",
            )
        self._outputs[name] = _at(buffer_ptr, element_type, shape, name)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An output is written into the memory of a value."""
        self.bind_output(name)
        self._outputs[name] = ortvalue.numpy()

    def run(self, run_options: object = None) -> None:
        """Runs the session (`session.run_with_iobinding(binding)`).

        Raises:
            InvalidInput: as `session.run`; no output is bound, or one has another shape than its memory.
        """
        if not self._outputs:
            raise InvalidInput("no output is bound", hint="binding.bind_output(name) binds one")
        found = self.session.run([*self._outputs], self._inputs, run_options)
        for (name, memory), value in zip(self._outputs.items(), found, strict=True):
            if memory is not None:
                write(memory, value, f"the memory that is bound to output {name}")
        memories = self._outputs.values()
        self._found = [
            OrtValue(value if memory is None else memory)
            for memory, value in zip(memories, found, strict=True)
        ]

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return [*self._found]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The same as arrays of the caller's own."""
        return [value.numpy().copy() for value in self._found]

    def synchronize_inputs(self) -> None:
        """Does nothing: a run waits for all it needs."""

    def synchronize_outputs(self) -> None:
        """Does nothing: a run ends when its outputs are there."""

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs, and those of the last run."""
        self._outputs.clear()
        self._found = []

    def _check(self, name: str, known: Sequence[NodeArg], what: str) -> None:
        names = [one.name for one in known]
        if name not in names:
            raise InvalidInput(
                f"unknown {what}: {name}", hint=f"the model's {what}s are: {', '.join(names)}"
            )


class ValueMethods:
    """The methods of ONNX Runtime's session that take these."""

    def io_binding(self) -> IOBinding:
        """What runs read and where they write, to be bound."""
        return IOBinding(self._session())

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Runs with the inputs and outputs that are bound.

        Raises:
            InvalidInput: as `run`; or they are bound to another session.
        """
        if iobinding.session is not self._session():
            raise InvalidInput(
                "the binding is of another session", hint="take session.io_binding() of this one"
            )
        iobinding.run(run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: object = None,
    ) -> list[OrtValue]:
        """As `run`, with values in the place of arrays."""
        found = self._session().run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(value) for value in found]

    def _session(self) -> Session:
        return cast("Session", self)


def write(memory: Array, value: Array, what: str) -> None:
    """Copies an array into one of the same shape and type.

    Raises:
        InvalidInput: it has another one, or the memory is read-only.
    """
    if (memory.shape, memory.dtype) != (value.shape, value.dtype) or not memory.flags.writeable:
        kept = "" if memory.flags.writeable else ", read-only"
        raise InvalidInput(
            f"{what} is {memory.dtype}{list(memory.shape)}{kept}, and the data are {value.dtype}{list(value.shape)}",
            hint="give memory of the shape and type of the data, or none",
        )
    memory[...] = value


def _check_device(device_type: str, device_id: int, vendor_id: int = -1) -> None:
    if str(device_type).lower() != "cpu" or device_id or vendor_id != -1:
        raise InvalidInput(
            f"there is no device {device_type} {device_id}", hint='take "cpu", the only one'
        )


def _numpy_type(element_type: Any) -> np.dtype[Any]:
    """Of a NumPy type, or a number of ONNX."""
    try:
        if isinstance(element_type, int):
            dtype = DTYPES[element_type]
            return foreign_type(dtype) or dtype.numpy
        found: np.dtype[Any] = np.dtype(element_type)
    except (KeyError, TypeError) as error:
        raise InvalidInput(
            f"there is no element type {element_type!r:.200}",
            hint="give a NumPy type, or a number such as onnx.TensorProto.FLOAT",
        ) from error
    return found


class _Memory:
    """Bytes at an address, for NumPy."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def _at(address: int, element_type: Any, shape: Sequence[int], name: str) -> Array:
    """Memory of somebody else as an array."""
    dtype = _numpy_type(element_type)
    small = dtype_of(np.empty(0, dtype)).bits < 8 and dtype != np.bool_  # packed, or lists of texts
    if dtype.hasobject or small or operator.index(address) <= 0:
        raise InvalidInput(
            f"{name} cannot lie at {address} as {dtype}", hint="bind the array: bind_cpu_input"
        )
    sizes = tuple(map(int, shape))
    return (
        np.asarray(_Memory(address, dtype.itemsize * math.prod(sizes))).view(dtype).reshape(sizes)
    )
