"""Texts do not depend on the locale that the process has set: a decimal comma (de_DE), a group mark and an i without a dot (tr_TR).
Everything that makes or reads text is asked in the C locale and in each other, which localedef makes here. Exit 77 without it."""
import ctypes as c
import json
import locale
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(os.environ["WEFT_BUILD"], "generated", "bindings", "ffi", "python"))
import weft_ffi as w  # noqa: E402

LOCALES = ("de_DE", "tr_TR", "fr_FR")
INTERESTING = [1234.5678, 0.25, -1e-7, 1e30, 3.0, 1234567.875, 2.0 ** -20, -0.5]
DTYPES = {"WEFT_F64": ("d", 8), "WEFT_F32": ("f", 4), "WEFT_F16": ("e", 2)}


def texts(lib, folder):
    """{what: text}; every text that the library makes of numbers, and what it reads of its own."""
    import struct
    out, said = {}, {"cache_mode": "off", "seed": "1234567", "max_pending_bytes": "1000000"}
    settings = (w.weft_setting * len(said))()
    for place, (name, value) in zip(settings, said.items()):
        place.name, place.name_length, place.value, place.value_length = name.encode(), len(name), value.encode(), len(value)
    options = w.weft_context_options()
    lib.weft_context_options_init(c.byref(options), c.sizeof(options))
    options.settings, options.setting_count = settings, len(said)
    ctx = w.weft_context()
    w.check(lib, lib.weft_context_create(c.byref(options), c.byref(ctx)))

    def blob(name, *args):
        b = w.weft_blob()
        w.check(lib, getattr(lib, name)(*args, c.byref(b)))
        text = c.string_at(lib.weft_blob_data(b), lib.weft_blob_size(b)).decode()
        lib.weft_blob_release(b)
        return text

    def error(e):
        text = w.text(lib.weft_error_message(e, None))
        lib.weft_error_release(e)
        return text

    for dtype, (form, size) in DTYPES.items():
        values = INTERESTING if form != "e" else [1.5, 0.25, -1e-4, 65504.0, 3.0, 0.1, 2.0 ** -20, -0.5]
        data = struct.pack("%d%s" % (len(values), form), *values)
        x = w.weft_tensor()
        w.check(lib, lib.weft_tensor_from_host(ctx, None, getattr(w, dtype), (c.c_int64 * 1)(len(values)), 1, data, len(data), c.byref(x)))
        print_options = w.weft_print_options()
        lib.weft_print_options_init(c.byref(print_options), c.sizeof(print_options))
        for precision in (-1, 0, 3, 17):
            print_options.precision = precision
            out["%s printed with %d digits" % (dtype, precision)] = blob("weft_tensor_to_string", x, c.byref(print_options))
        for one in range(len(values)):  # alone: each in its own notation
            y = w.weft_tensor()
            w.check(lib, lib.weft_tensor_from_host(ctx, None, getattr(w, dtype), None, 0, data[one * size:], size, c.byref(y)))
            out["%s number %d printed" % (dtype, one)] = blob("weft_tensor_to_string", y, None)
        half, scaled = w.weft_tensor(), w.weft_tensor()
        w.check(lib, lib.weft_tensor_constant_like(x, 0.125, c.byref(half)))
        w.check(lib, lib.weft_mul(ctx, x, half, c.byref(scaled)))
        for form in (0, 1):
            out["%s program, form %d" % (dtype, form)] = blob("weft_program_text", ctx, c.byref(scaled), 1, form)
    program = ("func.func @main(%a: tensor<2x3xf32>, %s: tensor<3xf32>) -> tensor<2x3xf32> {\n"
               "  %k = stablehlo.constant dense<[[1.25, -2.5e-3, 1.0e+10], [0.1, 3.75, 0x7F800000]]> : tensor<2x3xf32>\n"
               "  %0 = stablehlo.multiply %a, %k : tensor<2x3xf32>\n"
               "  %1:3 = \"stablehlo.batch_norm_training\"(%0, %s, %s) {epsilon = 1.0e-3 : f32, feature_index = 1 : i64} : "
               "(tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>)\n"
               "  return %1#0 : tensor<2x3xf32>\n}").encode()
    f = w.weft_function()
    w.check(lib, lib.weft_function_from_stablehlo(ctx, program, len(program), c.byref(f)))
    for form in (0, 1):
        out["a function, form %d" % form] = blob("weft_function_text", f, form)
    out["its key"] = blob("weft_function_key", f)
    path = os.path.join(folder, "f.function").encode()
    w.check(lib, lib.weft_function_save(f, path, len(path)))
    again = w.weft_function()
    w.check(lib, lib.weft_function_load(ctx, path, len(path), c.byref(again)))
    out["its file's function"] = blob("weft_function_text", again, 0)
    out["its key again"] = blob("weft_function_key", again)
    written = blob("weft_function_text", f, 1).encode()
    w.check(lib, lib.weft_function_from_stablehlo(ctx, written, len(written), c.byref(again)))
    out["the text of its text"] = blob("weft_function_text", again, 1)
    out["options"] = " ".join(blob("weft_context_option", ctx, name.encode(), len(name)) for name in said)
    json.loads(blob("weft_metrics_json", ctx))
    y = w.weft_tensor()
    out["an error"] = error(lib.weft_tensor_from_f64(ctx, w.WEFT_I32, 0.5, c.byref(y)))
    sgd = w.weft_sgd_options()
    lib.weft_sgd_options_init(c.byref(sgd), c.sizeof(sgd))
    sgd.momentum = -1.5
    out["an error of an option"] = error(lib.weft_sgd_create(ctx, c.byref(x), 1, c.byref(sgd), c.byref(w.weft_optimizer())))
    lib.weft_context_release(ctx)
    return out


def programs(folder, environment):
    """What the program `weft` says of numbers."""
    program = os.path.join(os.environ["WEFT_BUILD"], "bin", "weft")
    text = os.path.join(folder, "numbers.mlir")
    with open(text, "w", encoding="utf-8") as file:
        file.write("func.func @main() -> tensor<4xf64> {\n  %c = stablehlo.constant dense<[1234.5678, 0.25, -1.0e-7, 1.0e+30]> : tensor<4xf64>\n"
                   "  return %c : tensor<4xf64>\n}\n")
    done = subprocess.run([program, "run", text], capture_output=True, text=True, timeout=120, check=True,
                          env=dict(os.environ, XDG_CACHE_HOME=folder, **environment))
    return done.stdout


class Locale(unittest.TestCase):
    def test_texts_are_the_same_in_every_locale(self):
        lib = w.load(os.environ["WEFT_LIB"])
        with tempfile.TemporaryDirectory() as folder:
            plain = texts(lib, folder)
            self.assertIn("1.2345678", plain["WEFT_F64 printed with 17 digits"])
            ran = programs(folder, {"LC_ALL": "C"})
            for name in LOCALES:
                locale.setlocale(locale.LC_ALL, name + ".UTF-8")
                try:
                    self.assertEqual(",", locale.localeconv()["decimal_point"])
                    now = texts(lib, folder)
                finally:
                    locale.setlocale(locale.LC_ALL, "C")
                for what, text in plain.items():
                    self.assertEqual(text, now[what], "%s in %s" % (what, name))
                self.assertEqual(ran, programs(folder, {"LC_ALL": name + ".UTF-8"}), name)


def main():
    """Runs the test once more with the locales that it needs, which are made here."""
    if os.environ.get("WEFT_LOCALES_MADE"):
        unittest.main(argv=sys.argv[:1])
    localedef = shutil.which("localedef")
    if localedef is None:
        print("SKIPPED: localedef is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for name in LOCALES:
            made = subprocess.run([localedef, "--no-archive", "-i", name, "-f", "UTF-8", os.path.join(folder, name + ".UTF-8")],
                                  capture_output=True, text=True, check=False)
            if not os.path.isdir(os.path.join(folder, name + ".UTF-8")):
                print("SKIPPED: localedef has no description of %s: %s" % (name, made.stderr.strip()))
                return 77
        return subprocess.run([sys.executable, __file__], check=False, env=dict(os.environ, LOCPATH=folder, WEFT_LOCALES_MADE="1")).returncode


if __name__ == "__main__":
    sys.exit(main())
