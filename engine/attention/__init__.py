"""Attention over pages: one interface, several backends."""
