"""The tests of the Python package share this: where package and library are, and NumPy, which is their judge."""

import json
import os
import subprocess
import sys
import unittest

SOURCE = os.environ.get("WEFT_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("WEFT_BUILD") or os.path.join(SOURCE, "build", "release")
PACKAGE = os.path.join(BUILD, "generated", "bindings", "python")
WHEEL = os.path.join(SOURCE, "bindings", "python", "wheel.py")
if "LIBWEFT_INSTALLED" not in os.environ:  # Else the package is the installed one, with its own library.
    os.environ.setdefault("LIBWEFT_PATH", os.environ.get("WEFT_LIB") or os.path.join(BUILD, "lib"))
    sys.path.insert(0, PACKAGE)
os.environ.setdefault("WEFT_CACHE_MODE", "off")

try:
    import numpy as np
except ImportError:
    np = None


def needs_numpy(test):
    return unittest.skipIf(np is None, "NumPy is not installed")(test)


def description():
    with open(os.path.join(SOURCE, "include", "c_api", "weft_api.json"), encoding="utf-8") as f:
        return json.load(f)


def run(code, timeout=120, **environment):
    """A program in a process of its own: (exit status, standard output, standard error)."""
    env = {**os.environ, **environment}
    if "LIBWEFT_INSTALLED" not in os.environ:
        env["PYTHONPATH"] = PACKAGE
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
