"""One text of each group, and of about every second of its dtypes, of JAX's operator harnesses, run by Weft: none may come out wrong, and most must be read. What
is refused is counted, not judged. See jax_harness.py, which also runs all of them.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jax_harness  # noqa: E402

if __name__ == "__main__":
    jax_harness.enter(__file__)
    sys.argv = [sys.argv[0], "--sample"]
    sys.exit(jax_harness.main())
