"""The oneDNN runtime. In: a plan and the shapes of a run. Out: a program of the library's
primitives and host calls, and its runs.

- `values.py`, `constants.py`: where the values of a plan lie
- `translation.py`: attributes of a plan as attributes of the library
- `binary.py`, `compute.py`, `matmul.py`, `moves.py`, `normalization.py`, `pointwise.py`,
  `reorder.py`: the lowerings
- `convolving.py`: convolutions, and what runs as one; `faster.py`: which of oneDNN's kernels is faster than its first choice
- `in_f32.py`, `weights.py`: products of codes without an exact int8 kernel; the weights argument of a product
- `packed.py`, `decoder.py`, `coded.py`, `rows.py`: products with packed weights
- `recurrent.py`, `recurrent_dynamic.py`, `recurrent_f32.py`, `recurrent_steps.py`,
  `recurrent_weights.py`: recurrent layers, by the library and by kernels of our own
- `joining.py`: neighbouring dimensions that become one
- `host.py`, `host_calls.py`: steps that no primitive takes run on NumPy
- `binding.py`: one plan bound to shapes; `program.py`: what came of it; `runs.py`: memory of a run
- `executor.py`: which lowering serves which primitive; sessions and their threads
"""
