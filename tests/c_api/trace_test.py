"""Files of traces: Chrome's JSON parses, its spans nest on each thread and carry what a kernel is; the compressed file is small."""
import ctypes
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(os.environ[name]) for name in ("WEFT_SOURCE", "WEFT_BUILD"))
VOID, SIZE = ctypes.c_void_p, ctypes.c_size_t
F32 = 0x12002
STEPS = 200


def steps():
    """Runs in a process of its own, whose environment has the options."""
    lib = ctypes.CDLL(os.environ["WEFT_LIB"])

    def call(name, *args):
        function = getattr(lib, name)
        function.restype = VOID
        assert not function(*args), name

    def out(name, *args):
        value = VOID()
        call(name, *args, ctypes.byref(value))
        return value

    ctx = out("weft_context_create", None)
    n = 96
    data, dims = (ctypes.c_float * (n * n))(), (ctypes.c_int64 * 2)(n, n)
    w = out("weft_tensor_from_host", ctx, None, F32, dims, SIZE(2), data, SIZE(4 * n * n))
    begin = getattr(lib, "weft_span_begin")
    begin.restype = None
    for _ in range(STEPS):
        begin(ctx, b"data \xff\"\n%", SIZE(9))
        x = out("weft_tensor_from_host", ctx, None, F32, dims, SIZE(2), data, SIZE(4 * n * n))
        lib.weft_span_end(ctx)
        product = out("weft_matmul", ctx, x, w, None)
        y = out("weft_exp", ctx, product)
        call("weft_sync", ctx, None, None)
        call("weft_tensor_to_host", y, data, SIZE(4 * n * n))
        for tensor in (x, product, y):
            lib.weft_tensor_release(tensor)
    lib.weft_tensor_release(w)
    lib.weft_context_release(ctx)


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self, name, **env):
        path = self.folder / name
        done = subprocess.run([sys.executable, __file__, "--steps"], timeout=300, capture_output=True, text=True,
                              env=dict(os.environ, WEFT_TRACE_FILE=str(path), WEFT_CACHE_MODE="off", **env))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return path

    def test_chromes_json_nests_and_names_kernels(self):
        path = self.trace("trace.json.gz")
        trace = json.loads(gzip.decompress(path.read_bytes()).decode("utf-8"))
        events = trace["traceEvents"]
        self.assertEqual(0, trace["otherData"]["lost"])
        threads = {}
        for event in events:
            if event["ph"] == "X":
                threads.setdefault(event["tid"], []).append(event)
        named = {event["tid"] for event in events if event["name"] == "thread_name"}
        self.assertLessEqual(set(threads), named)
        for spans in threads.values():
            ends = []
            for span in spans:  # in the order of their beginnings, to a nanosecond
                start = round(1000 * span["ts"])
                end = start + round(1000 * span["dur"])
                while ends and ends[-1] <= start:
                    ends.pop()
                if ends:
                    self.assertLessEqual(end, ends[-1], span)
                ends.append(end)
        names = [event["name"] for event in events]
        self.assertEqual(STEPS, names.count("steps"))
        self.assertEqual(STEPS, names.count("data \ufffd\"\n%"))
        for name in ("record", "look up", "launch", "copy", "make program", "simplify", "generate code", "compile"):
            self.assertIn(name, names)
        kernels = [event for event in events if event.get("cat") == "kernel"]
        self.assertEqual(STEPS, sum(event["name"] == "gemm" for event in kernels))
        gemm = next(event for event in kernels if event["name"] == "gemm")["args"]
        self.assertRegex(gemm["implementation"], "^gemm [a-z].* f32$")
        self.assertEqual(2 * 96 ** 3, gemm["flops"])
        self.assertGreaterEqual(gemm["bytes_read"], 2 * 4 * 96 ** 2)
        # An arrow from each call to its launch, in which its kernels lie.
        begins, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
        self.assertEqual(STEPS, len(begins))
        self.assertEqual(set(begins), set(ends))
        runs = [event for event in events if event["ph"] == "X" and event["name"] == "run"]
        for number, end in ends.items():
            self.assertLessEqual(begins[number]["ts"], end["ts"])
            run = [one for one in runs if (one["tid"], one["ts"]) == (end["tid"], end["ts"])]
            self.assertEqual(1, len(run))
            inside = [one for one in kernels if one["tid"] == end["tid"] and run[0]["ts"] <= one["ts"] < run[0]["ts"] + run[0]["dur"]]
            self.assertIn("gemm", [one["name"] for one in inside])
        count = sum(event["ph"] in "XC" for event in events)
        self.assertLessEqual(path.stat().st_size / count, 24, count)

    def test_steps_are_chosen_and_the_report_is_a_file_too(self):
        report = json.loads(self.trace("report.json", WEFT_TRACE_STEPS="10:5").read_text(encoding="utf-8"))
        self.assertIn(report["steps"], (4, 5))
        self.assertTrue(all(thread["busy_nanoseconds"] <= report["nanoseconds"] for thread in report["threads"]))
        self.assertIn("kernels, ", self.trace("report.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--steps"]:
        steps()
    else:
        unittest.main()
