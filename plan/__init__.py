"""The plan: what the composer writes, and everyone else reads.

In: steps with their attributes. Out: a value that never changes, as a file, as text, or converted
to the other scheme of oneDNN.

- `attributes.py`: scales, zero points and post-ops of a primitive, with their equations
- `types.py`: `Plan` and `Step`
- `targets.py`: what each scheme takes, as data
- `verify.py`: everything that a plan states is derived again; `findings.py`, `verify_attributes.py`,
  `verify_shapes.py`, `verify_recurrent.py`, `verify_bodies.py` and `foreign.py` are its parts
- `accumulator.py`: how large sums of products of codes get
- `saturation.py`, `summation.py`: which of them may come out otherwise on a CPU without VNNI, and how
  oneDNN's implementations sum there
- `text.py`: the text form; `words.py`: that of scales and post-ops, there and back
- `file.py`: the plan as one ONNX file; `nodes.py`, `metadata.py` and `seal.py` are its parts
- `arguments.py`: which argument of a step is which input of its op
- `recurrent.py`, `recurrent_parameters.py`: what the library can say of a recurrent layer; its parameters in int8
- `conversion/`: plans for `onednn-v2` become plans for `onednn-v3`
"""
