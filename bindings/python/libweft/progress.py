"""A line that says how far a loop is. It is written to a terminal or a notebook and to nothing else."""

import sys
import time


def _notebook():
    return "ipykernel" in sys.modules


class bar:
    """Goes through an iterable and shows it: count, rate, time left, numbers that were set, and programs that were compiled.

    >>> for i in wf.bar(range(3), "epoch 1"):
    ...     pass
    """

    def __init__(self, iterable, title="", total=None, file=None, every=0.1, shown=None):
        self._iterable, self.title, self._every = iterable, title, every
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total
        self._file = sys.stderr if file is None else file
        self.shown = (_notebook() or bool(getattr(self._file, "isatty", bool)())) if shown is None else shown
        self.count, self._values, self._last, self._width = 0, {}, 0.0, 0
        self._compiled = 0

    def set(self, **values):
        """Numbers to show; tensors are read only when the line is written."""
        self._values.update(values)

    def line(self):
        passed = max(time.perf_counter() - self._start, 1e-9)
        rate = self.count / passed
        parts = [self.title] if self.title else []
        parts.append("%d/%d" % (self.count, self.total) if self.total is not None else "%d" % self.count)
        parts.append("%.1f it/s" % rate if rate >= 1 or not rate else "%.1f s/it" % (1 / rate))
        if self.total and rate:
            parts.append("%s left" % _clock((self.total - self.count) / rate))
        parts += ["%s %.4g" % (name, float(value)) for name, value in self._values.items()]
        compiled = self._programs() - self._compiled
        if compiled:
            parts.append("%d compiled" % compiled)
        return "  ".join(parts)

    @staticmethod
    def _programs():
        from .metrics import get

        return get("programs_compiled")

    def _write(self, end=""):
        text = self.line()
        self._file.write("\r" + text.ljust(self._width) + end)
        self._file.flush()
        self._width = len(text)

    def __iter__(self):
        self._start = time.perf_counter()
        if not self.shown:
            for self.count, item in enumerate(self._iterable, 1):
                yield item
            return
        self._compiled = self._programs()
        try:
            for item in self._iterable:
                yield item
                self.count += 1
                moment = time.perf_counter()
                if moment - self._last >= self._every:
                    self._last = moment
                    self._write()
        finally:
            self._write("\n")


def _clock(seconds):
    seconds = int(seconds)
    return (
        "%d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
        if seconds >= 3600
        else "%d:%02d" % (seconds // 60, seconds % 60)
    )
