"""Operations of lists of tensors, which torch's optimizers consist of: one call of torch's for all of them."""

from .runtime import C
from .table import ALPHA, BOOL, CALL_ADDC, CALL_BINARY, CALL_LERP, FLOAT, INPLACE, UNARY, lower

_FORMS = ("List", "Scalar", "ScalarList")
# name: (kind, flags, operation, overloads)
_ROWS = {
    "add": (CALL_BINARY, ALPHA | BOOL, "add", _FORMS + ("Tensor",)), "sub": (CALL_BINARY, ALPHA, "sub", _FORMS),
    "mul": (CALL_BINARY, BOOL, "mul", _FORMS + ("Tensor",)), "div": (CALL_BINARY, FLOAT, "div", _FORMS + ("Tensor",)),
    "maximum": (CALL_BINARY, BOOL, "maximum", _FORMS), "minimum": (CALL_BINARY, BOOL, "minimum", _FORMS),
    "addcmul": (CALL_ADDC, 0, "mul", ("Scalar", "ScalarList")), "addcdiv": (CALL_ADDC, 0, "div", ("Scalar", "ScalarList")),
    "lerp": (CALL_LERP, 0, "", ("Scalar",)), "sqrt": (UNARY, FLOAT, "sqrt", ("",)), "neg": (UNARY, 0, "neg", ("",)),
    "exp": (UNARY, FLOAT, "exp", ("",)), "abs": (UNARY, 0, "abs", ("",))}


def _results(kernel, valued):
    if not valued:
        return lambda *args, **kwargs: C.foreach(kernel, *args, **kwargs)
    return lambda self, one, other, value=1: C.foreach(kernel, self, one, other, value=value)


def _in_place(results):
    def function(*args, **kwargs):
        results(*args, **kwargs)

    return function


for _name, (_kind, _flags, _operation, _overloads) in _ROWS.items():
    for _overload in _overloads:
        _rest = "." + _overload if _overload else ""
        _valued = _kind == CALL_ADDC
        lower(f"_foreach_{_name}{_rest}")(_results(C.kernel(_kind, _flags, _operation), _valued))
        lower(f"_foreach_{_name}_{_rest}")(_in_place(_results(C.kernel(_kind, _flags | INPLACE, _operation), _valued)))
