"""The NumPy kernels. In: a step, bound to shapes. Out: calls into buffers of the caller.

- `base.py`: what every kernel is
- `windows.py`, `exact_gemm.py`, `gemm.py`: windows as rows, and exact products of codes, tile by
  tile
- `pairs.py`: what CPUs without VNNI lose in them
- `convolution.py`, `deconvolution.py`, `depthwise.py`, `fused_depthwise.py`, `matmul.py`,
  `block_gemm.py`, `pooling.py`: what accumulates
- `recurrent.py`, `recurrent_int8.py`: recurrent layers
- `elementwise.py`, `table.py`: what does not: binary, eltwise, reorder, concat, and operators by
  their rows of the op table
- `epilogue.py`, `passes.py`, `eltwise_math.py`: scales, bias, post-ops and rounding
  behind all
"""
