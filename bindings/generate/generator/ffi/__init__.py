"""Declarations of the whole C ABI for the foreign-function interfaces of other languages (bindings/ffi), from the complete
description alone."""
from . import go, luajit, python, rust

HOME = "bindings/ffi"


def files(api):
    out = {}
    for module in (luajit, python, rust, go):
        for path, text in module.files(api).items():
            out["%s/%s" % (HOME, path)] = text
    return out
