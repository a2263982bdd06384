"""Two plans step by step: which steps only one has, what differs in the others, which rule decided
otherwise, and what that does to the verdict.

`align` finds out which steps are the same one by the nodes of the model that both name, `compare`
says what differs, `screen` shows it, `document` gives it as data.
"""
