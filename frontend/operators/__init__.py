"""What an operator of a model becomes in the graph. In: the importer, and a node with its attributes
checked. Out: nodes of the op table.

- `upgrade.py`, `upgrade_inputs.py`, `windows.py`: ONNX's own operators in their newest form
- `standard.py`, `foreign.py`: rows of the op table; operators that stay as they are
- `scan.py`: Scan along any axis
- `derived.py`: how a dialect says what its nodes mean
- `fake_quantize.py`, `quantize_dequantize.py`, `run_time.py`, `blocked.py`,
  `qoperator.py`, `qonnx.py`, `quark.py`: a file for each dialect; `block_floats.py`: floats of few bits
- `cast_and_scale.py`, `written_out.py`: what a model writes out as arithmetic; `past_codes.py`: a past of codes
- `recurrent.py`, `linear_attention.py`: recurrent layers, and recurrent states of language models
- `experts.py`, `relative.py`: mixtures of experts; biases by distance
- `codebook.py`: weights that name numbers of a table
- `dialects.py`: who imports which operator
"""
