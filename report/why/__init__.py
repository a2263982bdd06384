"""The story of one node, quantizer, value or step: where it ended, which rules looked at it, and what
stands in the way of better.

`index` knows every name that a plan (and, where it is given, the model) uses, `endings` says what
became of a node, `story` puts the answer together, `screen` shows it, `document` gives it as data.
"""
