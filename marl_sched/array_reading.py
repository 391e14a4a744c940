"""Arrays are read by one thread at a time.

NumPy parses an array's header with `ast.literal_eval`, and CPython before 3.11.8 and 3.12.2 keeps
the depth of that parser in the interpreter, not in the call: two threads that read arrays at once
may fail with "SystemError: AST constructor recursion depth mismatch" when a garbage collection lets
the other one run (https://github.com/python/cpython/issues/106905). Zones that share a process do.
"""

import threading

READING_ARRAYS = threading.RLock()
"""Held while array headers are parsed, Flower's included."""
