"""Runs a test again where the packages that it needs are: in environments of the build tree that tests share."""

import os
import sys


def _enter(name, packages, script):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
    import python_env

    python_env.enter(name, packages, script)


def enter_numpy(script):
    _enter("numpy", ["numpy"], script)


def enter_checkers(script):
    """NumPy with Hypothesis, which draws the cases, cffi and mypy."""
    _enter("checkers", ["numpy", "hypothesis", "cffi", "mypy"], script)
