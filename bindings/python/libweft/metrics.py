"""Counters of the context, and averages of a training."""

import json

from . import _ops
from ._call import bind, blob_text, byref, c_int64, c_void_p, check, enumerator, handles, now, text_of
from ._context import start
from ._tensor import Parameter, Tensor
from ._wait import blocking

_render = bind("weft_metrics_render")
_get = bind("weft_metric_get")
_list = bind("weft_metric_list")
_add = bind("weft_metric_add")
_clear = bind("weft_metrics_clear")
_programs = bind("weft_program_list")
_text = bind("weft_program_text")
_TEXTS = {"ir": 0, "stablehlo": 1, "dot": 2, "optimised": 3, "plan": 4, "loops": 5, "llvm": 6, "assembly": 7}
_FORMATS = {"text": 0, "json": 1, "xla": 2, "xla_2019": 3, "openmetrics": 4}


def _blob(function, *arguments):
    blob = c_void_p()
    check(function(now.context or start(), *arguments, byref(blob)))
    return blob_text(blob)


def report(format="text"):
    """Everything that is counted, as text: "text", "json", "xla", "xla_2019", "openmetrics"."""
    return _blob(_render, enumerator(format, _FORMATS, "report", "format"))


def get(name):
    """One counter: `wf.metrics.get("programs_compiled")`."""
    out = c_int64()
    check(_get(now.context or start(), *text_of(name), byref(out)))
    return out.value


def available():
    """[{name, kind, unit, meaning}] of what there is to count."""
    return json.loads(_blob(_list))


def programs():
    """The compiled programs, the newest first, each with the reason for which it was compiled."""
    return json.loads(_blob(_programs))


def program(*tensors, format="ir"):
    """The program that a read of these tensors would run, or without any the next barrier: "ir", "stablehlo", "dot" (Graphviz), "optimised"
    (behind the passes), "plan" (what runs, entry by entry; compiled if it is not there), or its code as "loops", "llvm" or "assembly".

    >>> x = wf.ones((4, 4))
    >>> "relu" in wf.metrics.program((x @ x).relu())
    True
    """
    array, count = handles(tensors)
    blob = c_void_p()
    wanted = enumerator(format, _TEXTS, "program", "format")
    check(blocking(_text, now.context or start(), array, count, wanted, byref(blob)))
    return blob_text(blob)


def add(name, amount=1):
    """Counts something of the program's own."""
    check(_add(now.context or start(), *text_of(name), c_int64(amount)))


def clear():
    check(_clear(now.context or start()))


class Mean:
    """A running mean that is kept on the device and read when it is asked for.

    >>> mean = wf.metrics.Mean()
    >>> for value in (1.0, 3.0):
    ...     mean.update(wf.tensor(value))
    >>> mean.result()
    2.0
    """

    def __init__(self):
        self._total, self._count = Parameter(0.0, trainable=False), Parameter(0.0, trainable=False)

    def update(self, value, weight=1.0):
        value = value.detach().astype("f32") if isinstance(value, Tensor) else value
        value = _ops.mean(value) if isinstance(value, Tensor) and value.shape else value
        self._total.assign(self._total + value * weight)
        self._count.assign(self._count + weight)

    def result(self):
        count = float(self._count)
        return float(self._total) / count if count else float("nan")

    def reset(self):
        self._total.assign(self._total * 0)
        self._count.assign(self._count * 0)


class Accuracy(Mean):
    """The share of labels that the largest logit has.

    >>> accuracy = wf.metrics.Accuracy()
    >>> accuracy.update(wf.tensor([[1.0, 0.0], [1.0, 0.0]]), wf.tensor([0, 1]))
    >>> accuracy.result()
    0.5
    """

    def update(self, logits, labels):
        right = _ops.eq(_ops.argmax(logits, axis=-1).astype("i32"), labels.astype("i32"))
        super().update(right.astype("f32"), float(right.size))
