"""Files in, plain pages out: one module a format, run in a child process with limits.

Kept light: the child imports it, and `formats` answers questions without any parser loaded.
"""
