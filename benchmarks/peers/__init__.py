"""Engines to measure, each in a process and a Python of its own."""
