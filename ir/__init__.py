"""The language: types, op table, graph, text form, verifier and decisions."""
