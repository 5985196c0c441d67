"""Measurements. Each module is a command that prints a table and writes one JSON object."""
