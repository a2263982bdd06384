"""The op table: one row for each operator, shared by frontend, verifier, composer and runtime."""
