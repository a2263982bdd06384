"""What does a setting of a quantizer do to the plan? Real quantizers, run with one setting after the
other on small networks; the tables of the guides docs/quantize-*.md.

`subjects` are the networks; `setting` says what a setting is and what comes of one; `with_ort`,
`with_nncf`, `with_torch` and `with_brevitas` hold the settings of each quantizer; `tables` writes them
down and into the guides. Nothing is timed: shares, bytes, steps and SQNR are the same on every machine
with the same packages.
"""
