"""What a chain of operations computes. In: operations of the graph. Out: a formula of basic
operations in normal form.

- `formula.py`: the basic operations: scale, shift, round, clip, eltwise, binary, residual add,
  store
- `linked.py`: a sequence that grows at its end and shares its beginning
- `unary_rules.py`, `operand_rules.py`: what an operation of one operand, or of two, is in basic
  operations
- `algebra.py`: the normal form, and the rules that lead to it
- `store_rules.py`: what a store makes of the operations in front of it
- `writing.py`: residual adds and stores written by other operations
- `exact_zeros.py`: the order of scale and shift where a 0 must stay one
"""
