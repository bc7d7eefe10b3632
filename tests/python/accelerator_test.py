"""The accelerator: the same results, errors, positions and documentation as without it, and what an operation costs beside C.

The tests of the package run with it, too: wheel_test.py has it in the wheel, and here a part of each goes with it and without."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import support

# What an operation may cost beside the same one of C: 0.25 us are promised, and twice that are let pass, as other tests run beside.
MOST = 0.5
C = """
#include <time.h>
#include "weft.h"
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
double add(weft_context* ctx, weft_tensor* x, int count) {
  double begin = now();
  for (int i = 0; i < count; ++i) { weft_tensor* y; if (weft_add(ctx, x, x, &y)) return -1; weft_tensor_release(y); }
  return now() - begin;
}
double sum(weft_context* ctx, weft_tensor* x, int count) {
  const int64_t dims[] = {0};
  weft_sum_opts o = WEFT_SUM_OPTS_INIT;
  o.dims = dims, o.dims_count = 1, o.keepdims = 1, o.present = 3;
  double begin = now();
  for (int i = 0; i < count; ++i) { weft_tensor* y; if (weft_sum(ctx, x, &o, &y)) return -1; weft_tensor_release(y); }
  return now() - begin;
}
"""
SPEED = """
import ctypes, sys, time
import libweft as wf
from libweft import _call, _fast
assert bool(_fast.accelerator) == (sys.argv[2] == "1")
c, n, x = ctypes.CDLL(sys.argv[1]), 2000, wf.tensor([1.0, 2.0])
c.add.restype = c.sum.restype = ctypes.c_double
def operator():
    for _ in range(n):
        x + x
def keywords():
    for _ in range(n):
        wf.sum(x, axis=0, keepdims=True)
def timed(f):
    begin = time.perf_counter()
    f()
    return time.perf_counter() - begin
best = {}
for _ in range(60):
    for name, value in (("C add", c.add(_call.start(), x._h, n)), ("C sum", c.sum(_call.start(), x._h, n)),
                        ("add", timed(operator)), ("sum", timed(keywords))):
        best[name] = min(best.get(name, 9), value)
print(*["%.3f" % (1e6 * best[name] / n) for name in ("C add", "add", "C sum", "sum")])
"""
SAME = """
import copy, gc, inspect, os, pickle, weakref
import libweft as wf
x, y = wf.tensor([[1.0, 2.0], [3.0, 4.0]]), wf.tensor([[1, 2], [3, 4]])
def said(call):
    try:
        made = call()
    except Exception as error:
        where = getattr(error, "position", None)
        return type(error).__name__, str(error), where and where.rpartition(":")[2]
    return (made.tolist(), str(made.dtype), made.shape) if isinstance(made, wf.Tensor) else made
for call in (
    lambda: x + x, lambda: x + y, lambda: x + 1, lambda: 1 - x, lambda: y // 2, lambda: 7 % y, lambda: x @ y, lambda: [[1.0, 0.0]] @ x,
    lambda: -x, lambda: ~y, lambda: y << 1, lambda: y & 1, lambda: y | y, lambda: y ^ 3, lambda: x == y, lambda: x != None,
    lambda: x == "text", lambda: x < 2, lambda: 2 >= x, lambda: x > y, lambda: x <= x, lambda: x + wf.ones((3,)), lambda: x @ x[0][:1],
    lambda: x + "text", lambda: None + x, lambda: x + None, lambda: x.sum(axis=0), lambda: x.sum(0, True), lambda: x.sum(axis=(0, 1)),
    lambda: x.sum(axis=9), lambda: x.sum(axis=0, keepdim=True), lambda: x.sum(0, axis=0), lambda: x.sum(dims=0, keepdims=False),
    lambda: x.sum([0]), lambda: x.sum(axis=0.5), lambda: wf.sum(), lambda: wf.sum(x, 0, True, 1), lambda: wf.sum(x=x), lambda: wf.exp(None),
    lambda: wf.exp([0.0, 1.0]), lambda: wf.add(x, y=x), lambda: x.softmax(axis=-1), lambda: wf.softmax(x, -1, True),
    lambda: wf.gelu(x, form="tanh"), lambda: wf.gelu(x, form="none"), lambda: wf.scaled_dot_product_attention(x, x, x, causal=True),
    lambda: wf.scaled_dot_product_attention(x, x, x, None, True), lambda: wf.scaled_dot_product_attention(x, x, x, mask=x > 1),
    lambda: wf.cross_entropy(x, y[0] - 1, "sum"), lambda: wf.cross_entropy(x, y[0] - 1, label_smoothing=-0.0), lambda: wf.matmul(x, x, dtype="f64"),
    lambda: x.clip(0), lambda: wf.clip(x, 1.5, 2.5), lambda: wf.where(x > 1, x, -x), lambda: wf.linear(x, x), lambda: wf.linear(x, x, x[0]),
    lambda: x.argmax(axis=0, dtype=wf.i64), lambda: wf.argmax(x, dtype="f32"), lambda: copy.copy(x) * 2, lambda: pickle.loads(pickle.dumps(x)),
    lambda: wf.Parameter([1.0]) + 1, lambda: wf.Tensor.__new__(wf.Tensor, 3.0), lambda: object.__new__(wf.Tensor) + 1,
    lambda: pickle.loads(pickle.dumps(wf.exp)) is wf.exp, lambda: weakref.ref(x)() is x, lambda: hash(x) == object.__hash__(x),
    lambda: wf.grad(lambda v: (v * v + v.sum(axis=0)).sum())(x), lambda: wf.vmap(lambda v: v + v)(x), lambda: wf.function(lambda v: v @ v)(x),
    lambda: type(x).__name__ + type(x).__module__, lambda: wf.Tensor.__doc__.split()[0], lambda: repr(x + 0.0), lambda: (x + x).dtype,
):
    for _ in range(3):
        print(said(call))
for number in (2, 0.5, -0.0, 0.0, True, 2**60, 10**30, 1j, float("nan"), "2", None):
    for t in (x, y, x > 1, x.astype("c64"), x.astype("bf16"), x.astype("u8")):
        print(said(lambda: t * number), said(lambda: number - t), said(lambda: t < number), said(lambda: t @ number))
before, made = wf.metrics.get("programs_compiled"), []
for rate in (0.5, 0.25, 0.125, 0.5, 2, -0.0, 0.0):
    with wf.step():
        made.append((x * rate + 1 - 2 * x).keep())
print([t.tolist() for t in made], wf.metrics.get("programs_compiled") - before)
import tempfile
with tempfile.TemporaryDirectory() as work:
    with wf.Context(positions="stack", save_graphs=work + "/graphs"):
        z = wf.ones((2,))
        print(said(lambda: (z.exp() + z).sum()), said(lambda: z @ wf.ones((3, 3))))
    print(open(work + "/graphs").read())
with wf.Context(mode="eager"):
    z = wf.tensor([1.0, 4.0])
    print(said(lambda: z + z), said(lambda: z.sum(axis=0)), said(lambda: z + x))
    twice = wf.custom_op("twice", operands=["f32[n...]"], results=["f32[n...]"])(lambda a, b: [b.__setitem__(i, 2 * a[i]) for i in range(len(a))])
    print((twice(z) + z).tolist())
with wf.step():
    late = x * x
print(said(lambda: late + 1))
for name in wf.ops.__all__:
    f = getattr(wf.ops, name)
    print(name, inspect.signature(f), inspect.cleandoc(f.__doc__), f.__module__)
    if name in wf.ops.METHODS and callable(getattr(wf.Tensor, name)):
        print(inspect.signature(getattr(x, name)))
gc.collect()
print(wf.metrics.get("tensors_made") - wf.metrics.get("tensors_released") < 40, wf.metrics.get("bad_releases"))
"""
THREADS = """
import threading
import libweft as wf
from libweft import _call
assert _call.accelerator
box = []
def work():
    with wf.Context() as own:
        for i in range(300):
            y = wf.full((4,), float(i)) + i
            z = y.sum(axis=0, keepdims=True)
        box.append(z.tolist())
    _call.now.context = own._h  # What a thread leaves behind goes with it.
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(box == [[4 * 598.0]] * 8, _call.now.context)
"""
OTHERS = """
import sys
import libweft as wf
from libweft import _fast
assert _fast.accelerator
import {module} as interpreters
code = "import sys; sys.path[:] = %r; import libweft as wf; from libweft import _fast; assert not _fast.accelerator; " % sys.path
code += "assert (wf.ones((2,)) + 1).tolist() == [2.0, 2.0]"
try:
    interpreters.{run}(interpreters.create(), code)
except ImportError as error:
    print("refused")
print((wf.ones((2,)) + 1).tolist())
"""


@unittest.skipIf(sys.version_info < (3, 11) or "LIBWEFT_INSTALLED" in os.environ, "it is for Python 3.11 and later")
class Accelerator(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.work, cls.file = work.name, os.path.join(work.name, "_accelerator.abi3.so")
        made = subprocess.run(
            [sys.executable, support.WHEEL, "--accelerator", cls.file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout

    def said(self, code, file=None):
        status, out, error = support.run(code, LIBWEFT_ACCELERATOR=file or self.file)
        self.assertEqual((0, ""), (status, error))
        return out

    def test_it_asks_for_the_limited_api_alone(self):
        symbols = subprocess.run(["nm", "-D", "--undefined-only", self.file], stdout=subprocess.PIPE, text=True, check=True)
        asked = set(re.findall(r" U (_?Py\w+)", symbols.stdout))
        self.assertGreater(len(asked), 20)
        stable = {"_Py_NoneStruct", "_Py_TrueStruct", "_Py_NotImplementedStruct", "_Py_Dealloc"}
        self.assertEqual(set(), {name for name in asked if name.startswith("_")} - stable)
        defined = subprocess.run(["nm", "-D", "--defined-only", self.file], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(["PyInit__accelerator"], re.findall(r" T (\S+)", defined.stdout))

    def test_results_errors_positions_and_documentation_are_those_of_python(self):
        with_it, without = self.said(SAME), self.said(SAME, "0")
        self.assertEqual(without.splitlines(), with_it.splitlines())
        self.assertGreater(len(with_it.splitlines()), 1000)

    def test_threads(self):
        self.assertEqual("True None\n", self.said(THREADS))

    def test_another_interpreter_takes_the_functions_of_python_or_refuses(self):
        for module, run in (("_interpreters", "exec"), ("_xxsubinterpreters", "run_string")):
            try:
                __import__(module)
            except ImportError:
                continue
            self.assertIn(self.said(OTHERS.format(module=module, run=run)), ("[2.0, 2.0]\n", "refused\n[2.0, 2.0]\n"))
            return
        self.skipTest("this Python has no interpreters beside its own")

    def test_the_doctor_says_whether_it_is_there(self):
        for file, text in ((self.file, "accelerator " + self.file), ("0", "accelerator none")):
            done = subprocess.run(
                [sys.executable, "-m", "libweft", "doctor"],
                env={**os.environ, "PYTHONPATH": support.PACKAGE, "LIBWEFT_ACCELERATOR": file},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            self.assertIn(text, done.stdout)

    def test_an_operation_costs_little_more_than_in_c(self):
        source, loops = os.path.join(self.work, "loops.c"), os.path.join(self.work, "loops.so")
        with open(source, "w", encoding="ascii") as f:
            f.write(C)
        header = os.path.join(support.SOURCE, "include", "c_api")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", header, source, "-o", loops], check=True)
        for file, more in ((self.file, MOST), ("0", 8.0)):
            begin = "import ctypes, libweft; ctypes.CDLL(libweft.library_path(), ctypes.RTLD_GLOBAL)\n"
            code = begin + "import sys; sys.argv[1:] = [%r, %r]\n" % (loops, str(int(file != "0")))
            # The least of three processes, always: others of this machine are in each of them, and part of an interpreter's speed is
            # where the process has its memory.
            runs = [list(map(float, self.said(code + SPEED, file).split())) for _ in range(3)]
            c_add, add, c_sum, total = map(min, zip(*runs))
            print("add: C %.3f us, Python %.3f; sum by keywords: C %.3f, Python %.3f" % (c_add, add, c_sum, total))
            self.assertLess(add - c_add, more)
            self.assertLess(total - c_sum, more)

    def test_tests_of_the_package_run_with_it(self):
        for test, chosen in (("operations_test.py", []), ("functions_test.py", []), ("calls_test.py", ["Life", "Refusals", "Steps"])):
            done = subprocess.run(
                [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), test), *chosen],
                env={**os.environ, "LIBWEFT_ACCELERATOR": self.file},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            self.assertEqual(0, done.returncode, done.stdout)


if __name__ == "__main__":
    unittest.main()
