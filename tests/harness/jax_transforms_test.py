"""Sixteen random JAX functions under grad, vjp, jvp, vmap, checkpoint and nestings of them: Weft's transforms must give what JAX's give. See
jax_transforms.py, which also runs any others; scripts/test --full does.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jax_transforms  # noqa: E402

if __name__ == "__main__":
    jax_transforms.enter(__file__)
    sys.argv = [sys.argv[0], "--seeds", "1:16"]
    sys.exit(jax_transforms.main())
