"""What an operator of a model becomes in the graph. In: the importer, and a node with its attributes
checked. Out: nodes of the op table.

- `upgrade.py`, `upgrade_inputs.py`, `windows.py`: ONNX's own operators in their newest form
- `standard.py`, `foreign.py`: rows of the op table; operators that stay as they are
- `scan.py`, `batched_scan.py`, `grown.py`: Scan along any axis, and over a batch; sequences that a Loop grows
- `derived.py`: how a dialect says what its nodes mean
- `fake_quantize.py`, `quantize_dequantize.py`, `run_time.py`, `blocked.py`, `cast_and_scale.py`,
  `qoperator.py`, `qonnx.py`: a file for each dialect
- `recurrent.py`, `linear_attention.py`: recurrent layers, and recurrent states of language models
- `experts.py`, `relative.py`, `streams.py`: mixtures of experts; biases by distance; residual streams
- `codebook.py`, `renamed.py`: weights that name numbers of a table; ONNX's own under other names
- `dialects.py`: who imports which operator
"""
