"""Runs a test again where NumPy is: in the environment that the other tests of the tree share."""
import os
import sys


def enter_numpy(script):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
    import python_env
    python_env.enter("numpy", ["numpy"], script)
