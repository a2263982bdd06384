"""Builds the committed files of the digits model: `make models`. `models/README.md` has its story."""
