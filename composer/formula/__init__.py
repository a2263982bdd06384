"""What a chain of operations computes. In: operations of the graph. Out: a formula of basic
operations in normal form.

- `formula.py`: the basic operations: scale, shift, round, clip, eltwise, binary, residual add,
  store
- `linked.py`: a sequence that grows at its end and shares its beginning
- `definitions.py`: what an operation with another operand is in basic operations
- `algebra.py`: the normal form: affine maps, the rules for what stands between them, and what moves
  past what
- `store_rules.py`: what a store makes of the operations in front of it, and its parts as operations
- `writing.py`: residual adds written by other operations
- `exact_zeros.py`: the order of scale and shift where a 0 must stay one
"""
