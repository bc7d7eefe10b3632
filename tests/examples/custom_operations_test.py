"""Custom operations of other languages: a Rust function, a Python function through ctypes, BLAS of the machine where it has one; and a
program with one that a second process takes from the disk cache, without the function and with another signature, too."""
import ctypes as c
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, LIB = os.environ["WEFT_SOURCE"], os.environ["WEFT_LIB"]
FFI = os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python")
sys.path.insert(0, FFI)
import weft_ffi as w  # noqa: E402

F64 = 0x00014002

RUST = """
#[no_mangle]
pub extern "C" fn row_sums(x: *const f64, rows: usize, columns: usize, out: *mut f64) -> i32 {
    let x = unsafe { std::slice::from_raw_parts(x, rows * columns) };
    let out = unsafe { std::slice::from_raw_parts_mut(out, rows) };
    for (row, sum) in x.chunks(columns).zip(out) { *sum = row.iter().sum(); }
    if out_of_range(x) { 3 } else { 0 }
}
fn out_of_range(x: &[f64]) -> bool { x.iter().any(|v| v.is_nan()) }
"""

# What the second process runs: argv are the library, the cache's folder, the signature ("" registers nothing) and the function's file.
CHILD = """
import ctypes as c, os, sys
sys.path.insert(0, sys.argv[1])
import weft_ffi as w
from custom_operations_test import Context
ctx = Context(sys.argv[2], cache_dir=sys.argv[3])
if sys.argv[4]:
    ctx.symbol("gamma", "libm.so.6", "lgamma_r", sys.argv[4])
f = w.weft_function()
w.check(ctx.lib, ctx.lib.weft_function_load(ctx.handle, sys.argv[5].encode(), w.WEFT_STRLEN, c.byref(f)))
print(ctx.values(ctx.call(f, [ctx.tensor([1.0, 4.0])])), ctx.metric("programs_compiled"), ctx.metric("disk_cache_hits"))
"""


class Context:
    """As much of Weft as these tests need."""

    def __init__(self, library, **settings):
        self.lib = w.load(library)
        options = w.weft_context_options()
        self.lib.weft_context_options_init(c.byref(options), c.sizeof(options))
        given = (w.weft_setting * max(len(settings), 1))()
        for i, (name, value) in enumerate(settings.items()):
            given[i] = w.weft_setting(name.encode(), w.WEFT_STRLEN, value.encode(), w.WEFT_STRLEN)
        options.settings, options.setting_count = given, len(settings)
        self.handle = w.weft_context()
        self.ok(self.lib.weft_context_create(c.byref(options), c.byref(self.handle)))

    def ok(self, error):
        w.check(self.lib, error)

    def close(self):
        self.lib.weft_context_release(self.handle)

    def tensor(self, values, dims=None):
        data = (c.c_double * len(values))(*values)
        dims = dims if dims is not None else [len(values)]
        out = w.weft_tensor()
        self.ok(self.lib.weft_tensor_from_host(self.handle, None, F64, (c.c_int64 * len(dims))(*dims), len(dims), data, c.sizeof(data), c.byref(out)))
        return out

    def values(self, tensor):
        count = self.count(tensor)
        data = (c.c_double * count)()
        self.ok(self.lib.weft_tensor_to_host(tensor, data, c.sizeof(data)))
        self.lib.weft_tensor_release(tensor)
        return list(data)

    def count(self, tensor):
        dims, rank = (c.c_int64 * 32)(), c.c_size_t()
        self.ok(self.lib.weft_tensor_dims(tensor, dims, 32, c.byref(rank)))
        count = 1
        for d in range(rank.value):
            count *= dims[d]
        return count

    def options(self, **fields):
        options = w.weft_custom_options()
        self.lib.weft_custom_options_init(c.byref(options), c.sizeof(options))
        for name, value in fields.items():
            setattr(options, name, value)
        return options

    def register(self, name, address, signature, **fields):
        self.ok(self.lib.weft_custom_register(self.handle, name.encode(), w.WEFT_STRLEN, address, signature.encode(), w.WEFT_STRLEN, c.byref(self.options(**fields))))

    def symbol(self, name, library, symbol, signature, **fields):
        self.ok(self.lib.weft_custom_register_symbol(self.handle, name.encode(), w.WEFT_STRLEN, library.encode(), w.WEFT_STRLEN, symbol.encode(), w.WEFT_STRLEN,
                                                     signature.encode(), w.WEFT_STRLEN, c.byref(self.options(**fields))))

    def apply(self, name, inputs):
        given, out, count = (w.weft_tensor * max(len(inputs), 1))(*inputs), (w.weft_tensor * 4)(), c.c_size_t()
        self.ok(self.lib.weft_custom_apply(self.handle, name.encode(), w.WEFT_STRLEN, given, len(inputs), out, 4, c.byref(count)))
        for used in [*inputs, *(out[i] for i in range(1, count.value))]:
            self.lib.weft_tensor_release(used)
        return out[0]

    def call(self, function, inputs):
        given, out, count = (w.weft_tensor * len(inputs))(*inputs), (w.weft_tensor * 4)(), c.c_size_t()
        self.ok(self.lib.weft_function_call(self.handle, function, given, len(inputs), out, 4, c.byref(count)))
        for used in inputs:
            self.lib.weft_tensor_release(used)
        return out[0]

    def metric(self, name):
        value = c.c_int64()
        self.ok(self.lib.weft_metric_get(self.handle, name.encode(), w.WEFT_STRLEN, c.byref(value)))
        return value.value


class CustomOperations(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="weft-custom.")
        self.addCleanup(shutil.rmtree, self.work)
        self.ctx = Context(LIB, cache_dir=os.path.join(self.work, "cache"))
        self.addCleanup(self.ctx.close)

    def test_a_function_of_rust(self):
        rustc = shutil.which("rustc") or os.path.expanduser("~/.cargo/bin/rustc")
        source, library = os.path.join(self.work, "rows.rs"), os.path.join(self.work, "librows.so")
        with open(source, "w", encoding="utf-8") as out:
            out.write(RUST)
        done = subprocess.run([rustc, "--edition", "2021", "--crate-type", "cdylib", "-O", source, "-o", library], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        self.ctx.symbol("row_sums", library, "row_sums", "status(const double*[m, n], size_t=m, size_t=n, double*[m])", kind=1)
        os.remove(library)  # it stays loaded
        self.assertEqual([6, 15], self.ctx.values(self.ctx.apply("row_sums", [self.ctx.tensor([1, 2, 3, 4, 5, 6], [2, 3])])))
        failed = self.ctx.apply("row_sums", [self.ctx.tensor([1, float("nan")], [1, 2])])
        with self.assertRaisesRegex(w.Error, "custom operation 'row_sums': returned 3"):
            self.ctx.values(failed)

    def test_a_function_of_python(self):
        """Wherever Weft runs: on a plugin it is the host that calls, between two programs."""
        for settings in ({"platform": "cpu"}, {"platform": "reference"}, {"platform": "pjrt", "plugin": os.environ["WEFT_PJRT_FAKE"]}):
            with self.subTest(**settings):
                self.function_of_python(**settings)

    def function_of_python(self, **settings):
        seen = []

        @c.CFUNCTYPE(c.c_double, c.c_double, c.c_double)
        def hypotenuse(x, y):
            seen.append((x, y))
            return (x * x + y * y) ** 0.5

        released = []

        @w.weft_release_fn
        def release(_):
            released.append(True)

        ctx = Context(LIB, **settings)
        ctx.register("hypotenuse", c.cast(hypotenuse, c.c_void_p), "double(double, double)", release=release)
        self.assertEqual([5, 13], ctx.values(ctx.apply("hypotenuse", [ctx.tensor([3, 5]), ctx.tensor([4, 12])])))
        self.assertEqual([(3, 4), (5, 12)], seen)
        self.assertEqual(1 if "plugin" in settings else 0, ctx.metric("host_calls"))
        ctx.close()
        self.assertEqual([True], released)

    def test_a_blas(self):
        try:
            c.CDLL("libblas.so.3")
        except OSError:
            self.skipTest("the machine has no libblas.so.3")
        # Fortran counts columns first: what is row-major here is transposed there, so C^T = B^T A^T.
        signature = ("void(char*='N', char*='N', const int*=n, const int*=m, const int*=k, const double*=1, {b}const int*=n, {a}const int*=k, "
                     "const double*=0, double*[m, n], const int*=n)")
        with self.assertRaisesRegex(w.Error, "no shape of an operand says what"):
            self.ctx.symbol("none", "libblas.so.3", "dgemm_", signature.format(a="", b=""), kind=1)
        self.ctx.symbol("dgemm", "libblas.so.3", "dgemm_", signature.format(b="const double*[k, n], ", a="const double*[m, k], "), kind=1)
        b, a = self.ctx.tensor([1, 0, 2, 0, 1, 1], [3, 2]), self.ctx.tensor([1, 2, 3, 4, 5, 6], [2, 3])
        product = self.ctx.values(self.ctx.apply("dgemm", [b, a]))
        wanted = [sum(x * y for x, y in zip(row, column)) for row in ((1, 2, 3), (4, 5, 6)) for column in ((1, 2, 1), (0, 0, 1))]
        self.assertEqual(wanted, product)

    def second_process(self, signature, path):
        done = subprocess.run([sys.executable, "-c", CHILD, FFI, LIB, os.path.join(self.work, "cache"), signature, path],
                              capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.dirname(os.path.abspath(__file__))))
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    def test_a_second_process_takes_the_program_from_disk(self):
        text = ("func.func public @main(%x: tensor<2xf64>) -> tensor<2xf64> {\n"
                "  %y, %s = stablehlo.custom_call @gamma(%x) : (tensor<2xf64>) -> (tensor<2xf64>, tensor<2xi32>)\n  return %y : tensor<2xf64>\n}\n")
        self.ctx.symbol("gamma", "libm.so.6", "lgamma_r", "double(double, int*)")
        function, path = w.weft_function(), os.path.join(self.work, "gamma.weft")
        self.ctx.ok(self.ctx.lib.weft_function_from_stablehlo(self.ctx.handle, text.encode(), w.WEFT_STRLEN, c.byref(function)))
        self.ctx.ok(self.ctx.lib.weft_function_save(function, path.encode(), w.WEFT_STRLEN))
        first = self.ctx.values(self.ctx.call(function, [self.ctx.tensor([1.0, 4.0])]))
        self.ctx.lib.weft_function_release(function)
        self.ctx.close()  # what waits to be written is
        self.ctx = Context(LIB)
        self.assertEqual(f"{first} 0 1", self.second_process("double(double, int*)", path))
        self.assertIn("no custom operation 'gamma' is registered in this context", self.second_process("", path))
        self.assertIn("the custom operation 'gamma' is registered with the signature 'double(double, int32_t*)'; here it is called with 'double(double, int*)'",
                      self.second_process("double(double, int32_t*)", path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
