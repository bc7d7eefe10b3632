"""docs/concepts.md: its C blocks are a program that prints what the page says, each line of C of the look-up table runs, NumPy computes the
same where it has the function, and no operation is left out."""
import json
import operator
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
LIB = pathlib.Path(os.environ["WEFT_LIB"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import python_env  # noqa: E402

python_env.enter("numpy", ["numpy"], os.path.abspath(__file__))

import numpy as np  # noqa: E402

PAGE = (SOURCE / "docs" / "concepts.md").read_text(encoding="utf-8")
# Operations that no user of PyTorch or JAX looks for by name: their own users come from StableHLO.
NOT_LOOKED_UP = {"batch_norm_grad", "batch_norm_training", "select_and_scatter"}
DTYPES = {0x10806: "?", 0x10800: "i1", 0x12000: "i4", 0x14000: "i8", 0x12001: "u4", 0x14001: "u8", 0x12002: "f4", 0x14002: "f8", 0x14005: "c8", 0x11004: "u2"}

PRELUDE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "weft.h"
#include "weft_fluent.h"
static void ok(weft_error* error, int row) {
  if (error != NULL) printf("%d failed %s\\n", row, weft_error_message(error, NULL)), exit(1);
}
static void dump(int row, weft_tensor* y) {
  static unsigned char bytes[4096];
  int64_t dims[8];
  size_t rank = 0, i;
  uint64_t size = 0;
  weft_dtype dtype;
  ok(weft_tensor_dtype(y, &dtype), row);
  ok(weft_tensor_dims(y, dims, 8, &rank), row);
  ok(weft_tensor_size(y, &size), row);
  if (size > sizeof bytes) exit(2);
  ok(weft_tensor_to_host(y, bytes, size), row);
  printf("%d %u ", row, (unsigned)dtype);
  for (i = 0; i < rank; ++i) printf("%lld,", (long long)dims[i]);
  printf(" ");
  for (i = 0; i < size; ++i) printf("%02x", bytes[i]);
  printf("\\n");
}
static weft_error* half_more(void* user, weft_context* in, weft_tensor* const* x, size_t count, weft_tensor** out, size_t capacity, size_t* used) {
  wf_scope* s = wf_begin(in);
  weft_tensor* last = x[count - 1];
  (void)user, (void)capacity;
  out[0] = wf_keep(s, wf_add_n(s, wf_mul_n(s, last, 0.5), 1));
  *used = 1;
  return wf_end(s);
}
static weft_error* below_one(void* user, weft_context* in, weft_tensor* const* x, size_t count, weft_tensor** out, size_t capacity, size_t* used) {
  wf_scope* s = wf_begin(in);
  (void)user, (void)capacity, (void)count;
  out[0] = wf_keep(s, wf_lt(s, x[0], wf_scalar(s, WEFT_F32, 1)));
  *used = 1;
  return wf_end(s);
}
int main(void) {
  static const float values_a[] = {-0.9f, -0.5f, 0.25f, 0.5f, 0.75f, -0.125f}, values_b[] = {0.5f, 1.5f, 0.25f, 2, 0.75f, 3},
                     values_m[] = {1, -2, 0.5f, 3, -1, 2}, values_q[] = {4, 1, 1, 3}, values_v[] = {1, 3, 2};
  static const int32_t values_i[] = {1, 0}, values_n[] = {-5, 12, 7}, values_k[] = {1, 2, 3};
  static const unsigned char values_p[] = {1, 0, 1, 1, 0, 0}, values_o[] = {1, 1, 0, 1, 0, 1};
  weft_context* ctx = NULL;
  weft_tensor *t = NULL, *gradient = NULL, *moved = NULL;
  weft_function *f = NULL, *indexed = NULL, *small = NULL;
  weft_optimizer *optimizer = NULL, *sgd = NULL;
  weft_adam_options adam = WEFT_ADAM_OPTIONS_INIT;
  weft_tree *tree = NULL, *weights = NULL;
  weft_blob* blob = NULL;
  weft_device* device = NULL;
  weft_event* event = NULL;
  weft_memory_stats stats = WEFT_MEMORY_STATS_INIT;
  struct DLManagedTensorVersioned* lent = NULL;
  const weft_tensor_info scalar = {WEFT_F32, 0, {0}}, both[2] = {{WEFT_I32, 0, {0}}, {WEFT_F32, 0, {0}}};
  const int64_t three[] = {3};
  weft_dtype dtype;
  int64_t dims[8], count;
  uint64_t key, low, high;
  size_t rank;
  double value, rate = 0.25;
  float host[6];
  ok(weft_context_create(NULL, &ctx), -1);
  ok(weft_tensor_from_host(ctx, NULL, WEFT_F32, three, 1, values_v, 12, &t), -1);
  ok(weft_tensor_from_host(ctx, NULL, WEFT_F32, three, 1, values_v, 12, &gradient), -1);
  ok(weft_tensor_require_grad(t, 1), -1);
  ok(weft_function_trace(ctx, "f", WEFT_STRLEN, &scalar, 1, half_more, NULL, 1, &f), -1);
  ok(weft_function_trace(ctx, "indexed", WEFT_STRLEN, both, 2, half_more, NULL, 1, &indexed), -1);
  ok(weft_function_trace(ctx, "small", WEFT_STRLEN, &scalar, 1, below_one, NULL, 1, &small), -1);
  ok(weft_sgd_create(ctx, &t, 1, NULL, &sgd), -1);
  ok(weft_tree_create(&weights), -1);
  ok(weft_tree_add_tensor(weights, 0, "t", WEFT_STRLEN, t, NULL), -1);
  ok(weft_device_at(ctx, 0, &device), -1);
  ok(weft_sync(ctx, NULL, &event), -1);
"""
ROW = """  {
    wf_scope* s = wf_begin(ctx);
    weft_tensor *y = NULL, *parts[4] = {NULL}, *a = wf_from_host(s, WEFT_F32, WF_INTS(2, 3), values_a, 24), *b = wf_from_host(s, WEFT_F32, WF_INTS(2, 3), values_b, 24),
                *m = wf_from_host(s, WEFT_F32, WF_INTS(3, 2), values_m, 24), *q = wf_from_host(s, WEFT_F32, WF_INTS(2, 2), values_q, 16),
                *v = wf_from_host(s, WEFT_F32, WF_INTS(3), values_v, 12), *i = wf_from_host(s, WEFT_I32, WF_INTS(2), values_i, 8),
                *n = wf_from_host(s, WEFT_I32, WF_INTS(3), values_n, 12), *k = wf_from_host(s, WEFT_I32, WF_INTS(3), values_k, 12),
                *p = wf_from_host(s, WEFT_BOOL, WF_INTS(2, 3), values_p, 6), *o = wf_from_host(s, WEFT_BOOL, WF_INTS(2, 3), values_o, 6),
                *one = wf_full(s, NULL, 0, 1, .dtype = WEFT_I32), *zero = wf_scalar(s, WEFT_F32, 0), *yes = wf_lt(s, zero, wf_scalar(s, WEFT_F32, 1)),
                *image = wf_full(s, WF_INTS(1, 4, 4, 2), 0.5), *kernel = wf_full(s, WF_INTS(3, 3, 2, 3), 0.25), *heads = wf_full(s, WF_INTS(1, 2, 3, 4), 0.5);
    (void)a, (void)b, (void)m, (void)q, (void)v, (void)i, (void)n, (void)k, (void)p, (void)o, (void)one, (void)zero, (void)yes, (void)image, (void)kernel, (void)heads, (void)parts;
    LINE
    if (y != NULL) ok(wf_check(s), NUMBER), dump(NUMBER, y);
    ok(wf_end(s), NUMBER);
  }
"""
LETTERS = {"a": np.array([[-0.9, -0.5, 0.25], [0.5, 0.75, -0.125]], "f4"), "b": np.array([[0.5, 1.5, 0.25], [2, 0.75, 3]], "f4"),
           "m": np.array([[1, -2], [0.5, 3], [-1, 2]], "f4"), "q": np.array([[4, 1], [1, 3]], "f4"), "v": np.array([1, 3, 2], "f4"),
           "i": np.array([1, 0], "i4"), "n": np.array([-5, 12, 7], "i4"), "k": np.array([1, 2, 3], "i4"), "rate": 0.25,
           "p": np.array([[1, 0, 1], [1, 0, 0]], "?"), "o": np.array([[1, 1, 0], [1, 0, 1]], "?"), "jnp": np}


def rows():
    """(what JAX or NumPy says, the line of C) of each row that has one."""
    found = []
    for line in PAGE[PAGE.index("## Look-up table"):].splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []
        if len(cells) == 3 and cells[2].startswith("`"):
            found.append((cells[1].strip("`"), cells[2].strip("`")))
    return found


def build(folder, text, *flags):
    (folder / "page.c").write_text(text, encoding="utf-8")
    done = subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", *flags, "-I", str(SOURCE / "include" / "c_api"), str(folder / "page.c"), "-o", str(folder / "page"),
                           str(LIB), "-lpthread", f"-Wl,-rpath,{LIB.parent}"], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[:6000])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    return subprocess.run([str(folder / "page")], cwd=folder, env=dict(clean, XDG_CACHE_HOME=str(folder)), capture_output=True, text=True, timeout=300)


class Concepts(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory(prefix="weft-concepts.")
        self.addCleanup(self.work.cleanup)
        self.folder = pathlib.Path(self.work.name)

    def test_its_program_prints_what_it_says(self):
        code = "\n".join(re.findall(r"^```c\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
        said = "".join(re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
        done = build(self.folder, code, "-Werror")
        self.assertEqual((0, said), (done.returncode, done.stdout), done.stderr)

    def test_each_line_of_the_table_runs_and_gives_what_numpy_gives(self):
        table = rows()
        self.assertGreaterEqual(len(table), 150)
        body = "".join(ROW.replace("LINE", line).replace("NUMBER", str(number)) for number, (_, line) in enumerate(table))
        done = build(self.folder, PRELUDE + body + "  weft_context_release(ctx);\n  return 0;\n}\n", "-Wno-unused", "-Wno-maybe-uninitialized")
        failed = re.search(r"^(\d+) failed (.*)", done.stdout, re.MULTILINE)
        self.assertIsNone(failed, failed and f"{table[int(failed[1])]}: {failed[2]}")
        self.assertEqual(0, done.returncode, done.stderr)
        compared, seen = 0, {}
        for line in done.stdout.splitlines():
            number, dtype, dims, data = line.split(" ")
            dims = [int(dim) for dim in dims.split(",") if dim]
            if int(dtype) in DTYPES:
                seen[int(number)] = np.frombuffer(bytes.fromhex(data), DTYPES[int(dtype)]).reshape(dims)
        for number, (text, line) in enumerate(table):
            if not line.startswith("y = "):
                continue
            try:
                expected = eval(text, dict(LETTERS))  # the page's own words
                expected = np.asarray(expected[0] if isinstance(expected, tuple) else expected)  # y is the first of several
            except (AttributeError, NameError, SyntaxError, TypeError):
                continue  # JAX's alone
            with self.subTest(numpy=text, weft=line):
                self.assertEqual(expected.shape, seen[number].shape)
                np.testing.assert_allclose(seen[number].astype(expected.dtype), expected, rtol=2e-5, atol=1e-6)
            compared += 1
        self.assertGreaterEqual(compared, 85)

    def test_numpy_has_the_names_that_the_description_gives(self):
        with open(SOURCE / "include" / "c_api" / "weft_api.json", encoding="utf-8") as file:
            api = json.load(file)
        said = [entry["names"] for entry in api["operations"] + [f["recorded"] for f in api["functions"] if f["recorded"]]]
        names = {name for entry in said for name in entry.get("numpy", [])}
        for name in names:
            self.assertTrue(name.startswith("numpy."), name)
            operator.attrgetter(name.removeprefix("numpy."))(np)
        self.assertGreater(len(names), 140)
        self.assertGreater(sum("pytorch" in entry for entry in said), 260)
        self.assertGreater(sum("jax" in entry for entry in said), 180)

    def test_no_operation_is_left_out(self):
        with open(SOURCE / "include" / "c_api" / "weft_api.json", encoding="utf-8") as file:
            names = {op["c_name"] for op in json.load(file)["operations"]}
        used = set(re.findall(r"\bwf_(\w+)\(", "\n".join(line for _, line in rows())))
        self.assertEqual(sorted(NOT_LOOKED_UP), sorted(names - used))


if __name__ == "__main__":
    unittest.main(verbosity=2)
