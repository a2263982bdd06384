"""What a plan costs, what costs most of it, and what to change: the first screen of `inspect`.

`work` counts multiply-adds and bytes, `machine` says how fast this CPU is at best, `estimate` divides
one by the other. `catalogue` lists the kinds of findings, `recognize` and `numbers` find them in a
plan, `remedies` knows the words of the quantizers, `findings` puts them together with what they gain, and
`screen` shows them. `document` writes docs/findings.md.
"""
