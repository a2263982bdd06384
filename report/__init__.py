"""What a person sees of a plan, and what a program reads of it: pure functions of a `Plan`.

`summary` counts, `notation` writes single things, `layout` and `lines` lay them out. `steps`, `fates`,
`refusals` and `weighed` are the parts of `text`; `tables` has their rows for CSV and Python, `json` the whole
as data, `html` as a page, `notebook` for a notebook. `verdict` says what costs most, `why` tells of one node,
`diff` of two plans. `schemas/` describes every document, `schema` reads them.
"""
