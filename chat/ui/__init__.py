"""The page: it builds and wires, and calls the conversations and the library only."""
