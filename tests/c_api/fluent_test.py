"""weft_fluent.h in the user's own files: lists in C++, and the warnings that the user asked for."""
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
INCLUDE = os.path.join(SOURCE, "include", "c_api")
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-pedantic-errors", "-Werror"]

IN_CPP = r"""
#include <cstdio>
#include "weft.h"
#include "weft_fluent.h"

int main() {
  weft_context* ctx = nullptr;
  if (weft_context_create(nullptr, &ctx) != nullptr) return 2;
  wf_scope* s = wf_begin(ctx);
  const float data[] = {1, 2, 3, 4, 5, 6};
  const int two = 2;
  weft_tensor* x = wf_from_host(s, WEFT_F32, WF_INTS(two, 3), data, sizeof(data));
  weft_tensor* flat = wf_reshape(s, x, WF_INTS(two * 3LL, -1));
  weft_tensor* both = wf_concatenate(s, WF_TENSORS(x, x), 1);
  weft_tensor* rows = wf_sum(s, both, WF_INTS(-1), 1);
  weft_tensor* all = wf_sum(s, wf_mul(s, wf_reshape(s, wf_add(s, rows, rows), WF_INTS(2)), wf_relu(s, wf_mean(s, flat))));
  std::printf("%g ", wf_item(s, all));
  weft_tensor *mean, *parts[2], *grads[1];
  weft_tensor* ones = wf_full(s, WF_INTS(3), 1);
  weft_tensor* h = wf_batch_norm(s, x, ones, ones, nullptr, &mean);
  wf_split(s, x, WF_INTS(1, 2), -1, parts);
  if (wf_unstack(s, mean, 0, parts, 2) != 0) return 3;  // there are three
  weft_error_release(wf_end(s));
  s = wf_begin(ctx);
  x = wf_from_host(s, WEFT_F32, WF_INTS(two, 3), data, sizeof(data));
  if (weft_error* e = weft_tensor_require_grad(x, 1)) return weft_error_release(e), 4;
  h = wf_n_sub(s, 1, wf_mul_arg(s, wf_square(s, x), 0.5));
  if (!wf_grad(s, h, WF_TENSORS(x), grads, x)) return 5;
  all = wf_sum(s, grads[0]);
  std::printf("%g ", wf_item(s, all));
  all = wf_sum(s, wf_linear(s, x, wf_full(s, WF_INTS(3, 1), 14), nullptr, WEFT_F64));
  const double value = wf_item(s, all);
  const weft_tensor_info scalars[] = {{WEFT_F32, 0, {0}}, {WEFT_F32, 0, {0}}};
  const auto sum = [](void*, weft_context* body, weft_tensor* const* in, size_t, weft_tensor** out, size_t, size_t* n) {
    wf_scope* b = wf_begin(body);
    out[0] = wf_keep(b, wf_add(b, in[0], in[1]));
    out[1] = wf_keep(b, wf_mul_n(b, in[0], 2));
    *n = 2;
    return wf_end(b);
  };
  weft_function* f = nullptr;
  if (weft_function_trace(ctx, "sum", WEFT_STRLEN, scalars, 2, sum, nullptr, 2, &f) != nullptr) return 6;
  weft_tensor *one = wf_scalar(s, WEFT_F32, 1), *out[2], *unused[2];
  wf_scan(s, f, WF_TENSORS(one), WF_TENSORS(wf_reshape(s, x, WF_INTS(6))), out, 2);
  std::printf("%g %g ", wf_item(s, out[0]), wf_item(s, wf_sum(s, out[1])));
  wf_if(s, wf_gt(s, out[0], one), f, f, WF_TENSORS(one, one), out, 2);
  std::printf("%g ", wf_item(s, wf_call(s, f, WF_TENSORS(out[0], one), unused, 2)));
  weft_function_release(f);
  weft_error* error = wf_end(s);
  std::printf("%g %s\n", value, error != nullptr ? weft_error_message(error, nullptr) : "");
  weft_error_release(error);
  weft_context_release(ctx);
  return 0;
}
"""

IN_C = r"""
#include "weft.h"
#include "weft_fluent.h"
struct pair { int a, b; };
weft_tensor* f(wf_scope* s, weft_tensor* x) {
  struct pair twice = {.a = 1, .b = 2, .a = 3};
  return wf_sum(s, wf_sum(s, x, .dims = WF_INTS(-1), .keepdims = twice.a == 3),
                .keepdims = 0);
}
"""


def compilers(*names):
    return [c for c in map(shutil.which, names) if c]


def translate(compiler, path, *flags):
    return subprocess.run([compiler, "-fsyntax-only", "-I", INCLUDE, *flags, path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


class Fluent(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = work.name

    def write(self, name, text):
        path = os.path.join(self.work, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_lists_are_written_in_every_cpp_without_a_warning(self):
        path = self.write("user.cc", IN_CPP)
        for compiler in compilers("g++", "clang++", "clang++-19"):
            for standard in ("c++17", "c++20", "c++2b"):
                done = translate(compiler, path, "-std=" + standard, *STRICT)
                self.assertEqual(0, done.returncode, "%s -std=%s\n%s" % (compiler, standard, done.stdout[:3000]))

    @unittest.skipIf(os.environ.get("WEFT_SANITIZE") not in (None, "", "OFF"), "the program would need the sanitizer's library")
    def test_lists_in_cpp_mean_what_they_say(self):
        library = os.environ["WEFT_LIB"]
        program = os.path.join(self.work, "user")
        compiler = compilers("c++", "g++", "clang++")[0]
        done = subprocess.run([compiler, "-std=c++17", "-O1", "-I", INCLUDE, self.write("user.cc", IN_CPP), library,
                               "-Wl,-rpath," + os.path.dirname(library), "-o", program],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(0, done.returncode, done.stdout[:3000])
        done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=dict(os.environ, WEFT_CACHE_MODE="off"))
        # Rows of [x, x] add to 12 and 30, twice that to 84, times the mean 3.5; -x x to -91; 1 + 2 + … and twice what was carried
        # into each run, 1 2 4 7 11 16; 1 + 1 + 1; 14 x to 294.
        self.assertEqual((0, "294 -91 22 82 3 294 \n"), (done.returncode, done.stdout))

    def test_warnings_stay_on_in_the_users_own_code_and_off_in_the_calls(self):
        path = self.write("user.c", IN_C)
        for compiler in compilers("gcc", "clang", "clang-19"):
            for standard in ("c99", "c17"):
                done = translate(compiler, path, "-std=" + standard, *STRICT[:-1])
                self.assertEqual(0, done.returncode, done.stdout[:3000])
                warned = [line for line in done.stdout.splitlines() if "warning:" in line]
                self.assertEqual(1, len(warned), "%s -std=%s\n%s" % (compiler, standard, done.stdout[:3000]))
                self.assertIn("user.c:6:", warned[0])


if __name__ == "__main__":
    unittest.main()
