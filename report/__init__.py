"""What a person sees of a plan, and what a program reads of it: pure functions of a `Plan`.

`summary` counts, `notation` writes single things, `steps`, `fates` and `refusals` are the tables of
`text`, `json` is the same as data, and `html` the same as a page.
"""
