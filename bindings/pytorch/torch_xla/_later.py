"""Names of PyTorch/XLA that this package does not have: asking for one is an error that says which come later.

A module of the package hands its missing attributes to `missing`; `refuse_imports` does the same for modules that
do not exist. Both texts name the whole list, so that a user sees at once whether to wait or to rewrite.
"""
import dis
import importlib.abc
import sys

# What users of PyTorch/XLA use and this package will have, most used first.
LATER = (
    "torch_xla.distributed.fsdp",
    "torch_xla.distributed.spmd",
    "torch_xla.experimental.custom_kernel, apart from flash_attention",
    "torch_xla.core.functions, apart from all_reduce and all_gather",
    "torch_xla.compile",
    "torch_xla.experimental.eager_mode",
    "xp.trace, xp.trace_detached, xp.start_trace, xp.stop_trace",
    "torch_xla.distributed.zero_redundancy_optimizer",
    "torch_xla.stablehlo",
    "the dumps of torch_xla._XLAC",
)

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def text(name):
    return (f"{name} is not part of this torch_xla, which runs over Weft. These come later: " + "; ".join(LATER) +
            ". Whatever is neither there nor in this list is not planned (docs/pytorch.md)")


def missing(module, name):
    """The error for an attribute that `module` lacks; called from a module's __getattr__.

    `from module import name` would replace an AttributeError's text by its own, so there it is an ImportError.
    """
    caller = sys._getframe(2)
    full = f"{module}.{name}"
    if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
        return ImportError(text(full))
    return AttributeError(text(full), name=name)


class _Refusal(importlib.abc.MetaPathFinder):
    """Asked last, when nobody found a module of the package."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("torch_xla."):
            # Without `name`: with it, `from package import module` would swallow this error and its text.
            raise ModuleNotFoundError(text(fullname))
        return None


def refuse_imports():
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.append(_Refusal())
