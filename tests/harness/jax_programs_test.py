"""Forty random JAX programs of nested control flow, run by Weft: each must give what JAX gives. See jax_programs.py, which also runs
any others; scripts/test --full does.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jax_programs  # noqa: E402

if __name__ == "__main__":
    jax_programs.enter(__file__)
    sys.argv = [sys.argv[0], "--seeds", "1:40"]
    sys.exit(jax_programs.main())
