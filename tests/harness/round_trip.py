"""Texts that Weft reads, writes, reads again and writes again, through libweft.so in a process of its own. For the harnesses; wants
WEFT_SOURCE and WEFT_LIB in the environment.
"""
import concurrent.futures
import ctypes
import multiprocessing
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python"))
import weft_ffi  # noqa: E402


class Weft:
    """The library, as far as texts go; in a process of its own, which may die."""
    one = None

    def __init__(self):
        self.lib = weft_ffi.load(os.environ["WEFT_LIB"])
        self.context = weft_ffi.weft_context()
        weft_ffi.check(self.lib, self.lib.weft_context_create(None, ctypes.byref(self.context)))

    def blob(self, ask, *args):
        blob = weft_ffi.weft_blob()
        weft_ffi.check(self.lib, ask(*args, ctypes.byref(blob)))
        content = ctypes.string_at(self.lib.weft_blob_data(blob), self.lib.weft_blob_size(blob))
        self.lib.weft_blob_release(blob)
        return content

    def rewritten(self, text):
        """(key, text) of what the text reads as."""
        function = weft_ffi.weft_function()
        weft_ffi.check(self.lib, self.lib.weft_function_from_stablehlo(self.context, text, len(text), ctypes.byref(function)))
        try:
            return (self.blob(self.lib.weft_function_key, function),
                    self.blob(self.lib.weft_function_text, function, weft_ffi.WEFT_TEXT_STABLEHLO))
        finally:
            self.lib.weft_function_release(function)


def round_trip(text):
    """("read", what is written), ("refused", message) or ("unstable", what is wrong)."""
    if Weft.one is None:
        Weft.one = Weft()
    try:
        first = Weft.one.rewritten(text.encode())
    except weft_ffi.Error as error:
        return "refused", str(error)
    try:
        second = Weft.one.rewritten(first[1])
        third = Weft.one.rewritten(second[1])
    except weft_ffi.Error as error:
        return "unstable", f"what was written is not read: {error}\n{first[1].decode()}"
    if second[1] != first[1]:
        return "unstable", f"the second writing has other bytes:\n{first[1].decode()}\n{second[1].decode()}"
    if third[0] != second[0]:
        return "unstable", f"read again it has another key:\n{first[1].decode()}"
    return "read", first[1].decode()


class Reader:
    """round_trip, or another function, in another process, started again when it dies or hangs."""

    def __init__(self, limit=120, function=round_trip):
        self.limit, self.function, self.pool = limit, function, None

    def run(self, text):
        if self.pool is None:
            self.pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(self.function, text).result(self.limit)
        except (concurrent.futures.process.BrokenProcessPool, TimeoutError) as error:
            for process in list((self.pool._processes or {}).values()):
                process.kill()
            self.close()
            return "crash", type(error).__name__

    def close(self):
        if self.pool is not None:
            self.pool.shutdown()
        self.pool = None


def same_results(runner, case, results):
    """What is wrong with a text that was written of another: it must give the same bytes; or nothing."""
    stage, again = runner.run(case)
    if stage != "ok":
        return f"what was written fails: {stage}: {again}\n{case['text']}"
    if any(x.tobytes() != y.tobytes() for x, y in zip(results, again, strict=True)):
        return f"what was written computes something else:\n{case['text']}"
    return ""
