"""Substrates: one file each, held to one protocol."""
