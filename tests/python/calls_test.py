"""How the package calls the library: vectors of calls, leaks, threads, steps, signals, fork, and what is refused with
which text."""

import gc
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import support

import libweft as wf


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Vectors(unittest.TestCase):
    def test_golden_calls_replayed_with_the_library_that_the_package_found(self):
        ffi = os.path.join(support.BUILD, "generated", "bindings", "ffi", "python")
        tests = os.path.join(support.SOURCE, "tests", "ffi")
        with tempfile.TemporaryDirectory() as folder:
            code = (
                "import libweft, runpy, sys; sys.argv = ['replay.py', %r, libweft.library_path(), %r, %r]\n"
                "runpy.run_path(%r, run_name='__main__')"
                % (ffi, os.path.join(tests, "vectors.json"), folder, os.path.join(tests, "replay.py"))
            )
            status, out, error = support.run(code)
        self.assertEqual((0, ""), (status, error))
        lines = out.splitlines()
        self.assertGreater(len(lines), 40)
        self.assertEqual([], [line for line in lines if not line.startswith("ok ")])


class Life(unittest.TestCase):
    def test_a_million_tensors_leak_nothing(self):
        x = wf.tensor([1.0, 2.0])

        def make(count):
            for _ in range(count):
                x + x

        make(200_000)
        gc.collect()
        before, made = resident(), wf.metrics.get("tensors_made")
        make(1_000_000)
        self.assertEqual(1_000_000, wf.metrics.get("tensors_made") - made)
        self.assertLess(resident() - before, 4 << 20)
        self.assertEqual(0, wf.metrics.get("bad_releases"))

    def test_results_of_several_and_errors_leak_nothing(self):
        x = wf.tensor([[1.0, 2.0]])
        live = wf.metrics.get("tensors_made") - wf.metrics.get("tensors_released")
        for _ in range(100):
            x.cummax()
            x[0], x.tolist()
            with self.assertRaises(ValueError):
                x.reshape(3)
            with self.assertRaises(TypeError):
                wf.add(x, "text")
        gc.collect()
        self.assertLessEqual(wf.metrics.get("tensors_made") - wf.metrics.get("tensors_released") - live, 1)

    def test_four_threads_share_the_context(self):
        failures, start = [], threading.Barrier(4)

        def work(seed):
            try:
                start.wait()
                for i in range(40):
                    with wf.step():
                        x = wf.full((64,), float(seed)) + i
                        y = (x * x).sum().keep()
                    if y.item() != 64 * (seed + i) ** 2:
                        failures.append((seed, i, y.item()))
                    wf.exp(wf.ones((2,)))
            except BaseException as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([], failures)

    def test_finalizers_on_another_thread(self):
        box = [wf.ones((3,)) * i for i in range(1000)]
        t = threading.Thread(target=box.clear)
        t.start()
        t.join()
        self.assertEqual(0, wf.metrics.get("bad_releases"))

    def test_exit_with_everything_alive_is_clean(self):
        code = (
            "import libweft as wf, gc\nx = [wf.ones((2,)) + i for i in range(3)]\nf = wf.function(lambda x: x + 1)\nf(x[0])\n"
            "s = wf.step(); s.__enter__(); y = x[0] * 2\nx.append(x)\nprint('end')"
        )
        self.assertEqual((0, "end\n", ""), support.run(code))


class Speed(unittest.TestCase):
    def test_an_operation_costs_little_more_than_the_plain_calls_of_it(self):
        """One addition recorded and dropped beside the two calls of ctypes that it is made of, in turns, the best of each."""
        import ctypes

        from libweft import _call

        x = wf.tensor([1.0, 2.0])
        add, release, context = _call.bind("weft_add"), _call.quick("weft_tensor_release", None), _call.start()

        def plain():
            out = ctypes.c_void_p()
            add(context, x._h, x._h, ctypes.byref(out))
            release(out)

        def timed(call):
            begin = time.perf_counter()
            for _ in range(500):
                call()
            return time.perf_counter() - begin

        calls = {"plain": plain, "operator": lambda: x + x, "keywords": lambda: wf.sum(x, axis=0, keepdims=True)}
        turns = [{name: timed(call) for name, call in calls.items()} for _ in range(60)]
        best = {name: min(turn[name] for turn in turns) for name in calls}
        self.assertLess(best["operator"], 3 * best["plain"], best)
        self.assertLess(best["keywords"], 5 * best["plain"], best)


class Steps(unittest.TestCase):
    def train(self, held):
        """Programs that 60 steps of a network make whose intermediates live as long as the caller says."""
        own = wf.Context(platform="reference")
        with own:
            wf.seed(1)
            w1, w2 = wf.Parameter(wf.random.normal((8, 16))), wf.Parameter(wf.random.normal((16, 4)))
            x, y = wf.random.normal((32, 8)), wf.zeros((32,), "i32")
            wf.sync()
            optimizer = wf.optim.SGD([w1, w2], lr=0.1)
            for i in range(60):
                with wf.step():
                    h = x @ w1
                    a = h.relu()
                    logits = a @ w2
                    loss = wf.nn.cross_entropy(logits, y)
                    optimizer.step(loss)
                held((h, a, logits, loss))
            wf.sync(wait=True)
            return wf.metrics.get("programs_queued")

    def test_intermediates_held_at_random_compile_what_clean_steps_compile(self):
        clean = self.train(lambda tensors: None)
        forever, chance, pool = [], random.Random(3), []

        def at_random(tensors):
            pool.extend(t for t in tensors if chance.random() < 0.7)
            while pool and chance.random() < 0.6:
                pool.pop(chance.randrange(len(pool)))

        self.assertEqual(clean, self.train(forever.append))
        self.assertEqual(clean, self.train(at_random))
        self.assertLessEqual(clean, 4)

    def test_a_late_read_names_the_remedy(self):
        x = wf.ones((2,))
        with wf.step():
            y, z = x * 2, (x * 3).keep()
        self.assertEqual([3, 3], z.tolist())
        with self.assertRaisesRegex(wf.Error, r"call \.keep\(\) on it before its step ends") as caught:
            y.tolist()
        self.assertIsInstance(caught.exception, RuntimeError)

    def test_an_exception_leaves_the_step_and_the_context_goes_on(self):
        x = wf.Parameter([1.0])
        with self.assertRaises(KeyError):
            with wf.step():
                x.assign(x + 1)
                raise KeyError("x")
        self.assertEqual([2.0], x.tolist())

    def printed(self, cell):
        """Programs of 20 steps of training in a context of its own, and of each step after the first."""
        with wf.Context(platform="reference"):
            wf.seed(1)
            network = [wf.Parameter(wf.random.normal(shape)) for shape in ((4, 8), (8, 8), (8, 1))]
            x = wf.ones((16, 4))
            wf.sync(wait=True)
            optimizer, before, out = wf.optim.SGD(network, lr=0.01), wf.metrics.get("programs_compiled"), []
            for _ in range(20):
                cell(x, network, optimizer, out)
            wf.sync(wait=True)
            self.assertEqual(len(out), len([text for text in out if text.startswith("tensor(") and "traced" not in text]))
            return wf.metrics.get("programs_compiled") - before

    def test_a_notebook_that_prints_every_intermediate_trains_with_three_programs(self):
        def behind_the_step(x, network, optimizer, out):
            with wf.step() as step:
                values = [x @ network[0]]
                values.append(values[-1].tanh())
                values.append(values[-1] @ network[1])
                values.append(values[-1].tanh())
                values.append(values[-1] @ network[2])
                values.append(values[-1].square().mean())
                step.keep(*values)
                optimizer.step(values[-1])
            out += map(repr, values)

        def where_they_are_made(x, network, optimizer, out):
            with wf.step():
                y = ((x @ network[0]).tanh() @ network[1]).tanh() @ network[2]
                out.append(repr(y))
                loss = y.square().mean()
                out.append(repr(loss))
                optimizer.step(loss)

        self.assertLessEqual(self.printed(behind_the_step), 3)
        self.assertLessEqual(self.printed(where_they_are_made), 3)


SLOW = """
import libweft as wf, signal, time, os, threading
@wf.custom_op("slow", operands=["f64[n...]"], results=["f64[n...]"])
def slow(x, y):
    end = time.time() + 3
    while time.time() < end:
        time.sleep(0.01)
    y[:] = x
x = wf.tensor([1.0], "f64")
def loop():
    return wf.while_loop(lambda i: i < 2_000_000_000, lambda i: i + 1, wf.tensor(0, "i64"))
sent = [0.0]
def interrupt():
    sent[0] = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
def late(wait):
    # Milliseconds from Ctrl-C to the end of a wait.
    endless = loop()
    threading.Timer(0.3, interrupt).start()
    try:
        wait(endless)
        print("nobody interrupted")
    except KeyboardInterrupt:
        return 1e3 * (time.monotonic() - sent[0])
waits = [lambda t: t.item(), lambda t: t.numpy() if WITH_NUMPY else t.tobytes(), lambda t: print(t), lambda t: wf.sync(wait=True),
         lambda t: wf.evaluate(t), lambda t: t.__dlpack__(), lambda t: wf.save("never", {"x": t})]
for wait in waits:
    times = sorted(late(wait) for _ in range(3))
    print("interrupted" if times[0] < 100 and times[1] < 300 else "late %s" % times)
    print((x + 1).item(), (x * 3).sum().item())
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
y = wf.while_loop(lambda i: i < 60_000_000, lambda i: i + 1, wf.tensor(0, "i64"))
print(y.item() > 0, (x + 5).item())
"""


# A program as a notebook runs it: cells end by Ctrl-C wherever they are, and the next one goes on.
TRAINING = """
import libweft as wf, os, signal, threading, time
def slow(n):
    return wf.while_loop(lambda i: i < n, lambda i: i + 1, wf.tensor(0, "i64"))
w = wf.Parameter(wf.zeros(()))
optimizer = wf.optim.SGD([w], lr=1.0)
def train(steps, n):
    for _ in range(steps):
        with wf.step():
            optimizer.step([-(slow(n) > 0).astype("f32")])
cells = [lambda: train(10**6, 10_000_000), lambda: slow(10**11).item(), lambda: wf.evaluate(slow(10**11)), lambda: wf.save("no", {"x": slow(10**11)})]
def barrier():
    endless = slow(10**11)
    wf.sync(wait=True)
for cell in [*cells, barrier, *cells]:
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        cell()
        print("nobody interrupted")
    except KeyboardInterrupt:
        pass
    before = w.item()
    for _ in range(4):
        train(1, 5)
        time.sleep(0.05)
    print("goes on" if before >= 0 and w.item() == before + 4 else "%r, and then %r" % (before, w.item()))
"""


# A loop by hand, without an optimizer: its parameter is computed by no launch before the first step. Ctrl-C that Python raises
# between the two assignments leaves them one step apart in any library; such a cell proves nothing and is run again.
BY_HAND = """
import libweft as wf, os, signal, threading
def cell(end, seconds):
    start = wf.random.normal((300, 300))
    w, count, between = start + 0, wf.tensor(0.0), False
    def train(steps):
        nonlocal between
        for _ in range(steps):
            y = start
            for _ in range(6):
                y = (y @ w).tanh()
            loss = y.square().mean()
            between = True
            w.assign(w + loss * 0 + 1)
            count.assign(count + 1)
            between = False
            end(loss)
    try:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        train(10**6)
    except KeyboardInterrupt:
        if between:
            return False
    train(3)
    before = count.item()
    train(4)
    print(before >= 3, count.item() - before, ((w - start) - count).abs().max().item() < 1e-3 * (before + 4))
    return True
for end in [lambda loss: wf.sync(), lambda loss: wf.sync(wait=True), lambda loss: loss.item(), lambda loss: (loss.item(), wf.sync())]:
    for seconds in 0.02, 0.5:
        while not cell(end, seconds):
            pass
"""


class Waits(unittest.TestCase):
    maxDiff = None

    def test_a_loop_by_hand_that_ctrl_c_ends_goes_on_whole(self):
        status, out, error = support.run(BY_HAND)
        self.assertEqual((0, 8 * ["True 4.0 True"], ""), (status, out.splitlines(), error))

    def test_cells_that_ctrl_c_ends_leave_parameters_and_the_next_steps_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            status, out, error = support.run("import os\nos.chdir(%r)\n" % folder + TRAINING)
            self.assertEqual([], os.listdir(folder))
        self.assertEqual((0, 9 * ["goes on"], ""), (status, out.splitlines(), error))

    def test_what_somebody_cancels_is_told(self):
        with wf.Context() as own:
            x = wf.while_loop(lambda i: i < 10**11, lambda i: i + 1, wf.tensor(0, "i64"))
            threading.Timer(0.2, own.cancel).start()
            with self.assertRaisesRegex(wf.Error, "cancelled by weft_cancel") as caught:
                x.item()
            self.assertEqual("CANCELLED", caught.exception.code)

    def test_ctrl_c_ends_a_read_and_the_context_is_as_good_as_before(self):
        status, out, error = support.run("WITH_NUMPY = %r\n" % (support.np is not None) + SLOW)
        self.assertEqual("", error)
        self.assertEqual(7 * ["interrupted", "2.0 3.0"] + ["True 6.0"], out.splitlines())

    def test_awaiting_tensors(self):
        import asyncio

        async def main():
            values = await asyncio.gather(*[wait(i) for i in range(5)])
            return values

        async def wait(i):
            x = (wf.ones((100, 100)) * i).sum()
            await x
            return x.item()

        self.assertEqual([0, 10000, 20000, 30000, 40000], asyncio.run(main()))

    def test_other_threads_run_while_one_waits(self):
        loop = wf.while_loop(lambda i: i < 40_000_000, lambda i: i + 1, wf.tensor(0, "i64"))
        count, stop = [0], threading.Event()

        def work():
            while not stop.is_set():
                count[0] += 1
                time.sleep(0.001)

        t = threading.Thread(target=work)
        t.start()
        loop.item()
        stop.set()
        t.join()
        self.assertGreater(count[0], 3)

    def test_saving_behind_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            saving = wf.save(path, {"x": wf.arange(1000)}, wait=False)
            saving.wait()
            self.assertTrue(saving.done)
            self.assertEqual(999, wf.load(path)["x"][-1].item())

    def test_a_save_says_how_far_it_is_and_may_be_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            path, heard = os.path.join(folder, "x"), []
            x = wf.full((4 << 20,), 1.5)
            wf.save(path, {"x": x}, progress=lambda done, total: heard.append((done, total)))
            self.assertEqual(heard[-1], (heard[-1][1], heard[-1][1]))
            self.assertGreaterEqual(heard[-1][1], 16 << 20)
            self.assertEqual(sorted(heard), heard)
            with self.assertRaisesRegex(wf.Error, "asked for an end"):
                wf.save(path, {"x": x + 1}, progress=lambda done, total: True)

            def raises(done, total):
                raise KeyError("mine")

            with self.assertRaisesRegex(KeyError, "mine"):
                wf.save(path, {"x": x + 1}, wait=False, progress=raises).wait()
            self.assertEqual(1.5, wf.load(path)["x"][0].item())
            self.assertEqual(["x"], os.listdir(folder))

    def test_saves_by_step_keep_the_newest_and_a_pointer_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for step in range(5):
                wf.save(os.path.join(folder, "m-{step}"), {"x": wf.full((2,), float(step))}, step=step, keep_last=2, pointer="latest")
            self.assertEqual(["latest", "m-3", "m-4"], sorted(os.listdir(folder)))
            self.assertEqual([4.0, 4.0], wf.load(os.path.join(folder, "latest"))["x"].tolist())
            with self.assertRaisesRegex(wf.Error, "has to have {step} in it"):
                wf.save(os.path.join(folder, "m"), {"x": wf.ones((2,))}, keep_last=2)

    def test_saves_smaller_and_upon_another(self):
        with tempfile.TemporaryDirectory() as folder:
            at = lambda name: os.path.join(folder, name)  # noqa: E731
            state = {"frozen": wf.arange(1 << 18), "head": wf.ones((1 << 16,))}
            wf.save(at("whole"), state)
            wf.save(at("small"), state, compress="zstd")
            wf.save(at("next"), {**state, "head": state["head"] * 2}, base="whole")
            self.assertLess(os.path.getsize(at("small")) * 2, os.path.getsize(at("whole")))
            self.assertLess(os.path.getsize(at("next")) * 2, os.path.getsize(at("whole")))
            for name, head in (("small", 1.0), ("next", 2.0)):
                back = wf.load(at(name))
                self.assertEqual(state["frozen"].tolist(), back["frozen"].tolist())
                self.assertEqual(head, back["head"].tolist()[-1])
            os.remove(at("whole"))
            with self.assertRaisesRegex(FileNotFoundError, "next' takes parts from 'whole' beside it"):
                wf.load(at("next"))
            with self.assertRaisesRegex(ValueError, "compress is 'gzip'"):
                wf.save(at("x"), state, compress="gzip")
            with self.assertRaisesRegex(ValueError, "base is 'a/b'; it is the name of a file beside the new one"):
                wf.save(at("x"), state, base="a/b")

    def test_fork_says_what_c_says(self):
        code = (
            "import libweft as wf, os, warnings\nwarnings.simplefilter('ignore')\n"  # Python warns of threads, which a wait has made.
            "x = wf.ones((2,)); x.tolist()\npid = os.fork()\n"
            "if pid == 0:\n    try:\n        x + x\n        os._exit(1)\n    except RuntimeError as error:\n"
            "        os._exit(0 if 'fork' in str(error) else 2)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
        )
        self.assertEqual((0, "0\n", ""), support.run(code))


class Refusals(unittest.TestCase):
    def refused(self, kind, text, call):
        with self.assertRaisesRegex(kind, text) as caught:
            call()
        self.assertIsInstance(caught.exception, wf.Error)
        return caught.exception

    def test_errors_say_operation_and_the_line_that_the_traceback_shows(self):
        x = wf.ones((2, 3))
        try:
            x @ x
        except ValueError as error:
            line = error.__traceback__.tb_lineno
            self.assertEqual("%s:%d" % (__file__, line), error.position)
            self.assertEqual(("matmul", "INVALID_ARGUMENT"), (error.operation, error.code))
        else:
            self.fail("nothing was refused")

    def test_positions_have_all_of_python_s_frames_where_a_context_asks_for_them(self):
        code = (
            "import sys, libweft as wf\n"
            "def inner(x):\n    return x.exp()\n"
            "class Net:\n    def outer(self, x):\n        return inner(x)\n"
            "def step():\n    return Net().outer(wf.ones((2,)))\n"
            "with wf.Context(positions=sys.argv[1], save_graphs=sys.argv[2]) as _:\n    step().tolist()\n"
            "with wf.Context() as _:\n    step().tolist()\n"
        )
        with tempfile.TemporaryDirectory() as work:
            program = os.path.join(work, "net.py")
            with open(program, "w", encoding="utf-8") as out:
                out.write(code)
            installed = {} if "LIBWEFT_INSTALLED" in os.environ else {"PYTHONPATH": support.PACKAGE}
            net = "Net.outer" if sys.version_info >= (3, 11) else "outer"
            for positions, frames in (
                ("stack", ["inner (%s:3)", net + " (%s:6)", "step (%s:8)", "<module> (%s:10)"]),
                ("call", ["%s:3"]),
            ):
                graphs = os.path.join(work, positions)
                done = subprocess.run(
                    [sys.executable, program, positions, graphs],
                    env={**os.environ, **installed},
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=120,
                )
                self.assertEqual((0, ""), (done.returncode, done.stderr))
                with open(graphs, encoding="utf-8") as text:
                    said = text.read()
                wanted = "".join("  %s\n" % (frame % program) for frame in frames)
                self.assertIn("TensorsGraphInfo:\n" + wanted + "\nHashes:", said)
                self.assertIn("xla::exp(%1), location=" + program + ":3", said)

    def test_wrong_calls(self):
        x = wf.ones((2, 3))
        self.refused(ValueError, r"do not broadcast", lambda: x + wf.ones((4,)))
        self.refused(TypeError, "x is None, and should be a tensor", lambda: wf.exp(None))
        self.refused(TypeError, "dims is 'a', and should be an integer or a list", lambda: x.sum(dims="a"))
        self.refused(TypeError, "value is 'q', and should be a number", lambda: wf.full((2,), "q"))
        self.refused(TypeError, "'f99' is no element type", lambda: x.astype("f99"))
        self.refused(ValueError, "'sum', 'none'|one of", lambda: wf.nn.mse(x, x, reduction="total"))
        self.refused(ValueError, "not one value", lambda: bool(x))
        self.refused(IndexError, "too many", lambda: x[0, 0, 0])
        self.refused(ValueError, "only one size may be -1", lambda: x.reshape(-1, -1))
        self.refused(TypeError, "cannot become a tensor", lambda: wf.tensor(object()))
        self.refused(ValueError, "axis", lambda: x.softmax(axis=7))
        self.refused(TypeError, "seed|integer|number", lambda: wf.full(("a",), 1))
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'keepdim'"):
            x.sum(keepdim=True)
        with self.assertRaisesRegex(AttributeError, "did you mean 'softmax'"):
            wf.softmaxx

    def test_wrong_places(self):
        other = wf.Context()
        with other:
            foreign = wf.ones((2,))
        self.refused(ValueError, "another context", lambda: foreign + 1)
        self.refused(
            RuntimeError, "nothing has a value while a function is recorded", lambda: wf.function(lambda x: float(x))(1.0)
        )
        self.refused(RuntimeError, "there already", lambda: (wf.ones((1,)), wf.configure(threads=1)))
        self.refused(ValueError, "threads|option", lambda: wf.Context(threads="many"))
        self.refused(LookupError, "no option", lambda: wf.Context(no_such=1))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            self.refused(FileNotFoundError, "No such file", lambda: wf.load(os.path.join(folder, "none")))
            self.refused(FileNotFoundError, "does not exist", lambda: wf.save(os.path.join(folder, "a", "b"), {"x": 1}))
            self.refused(TypeError, "cannot hold", lambda: wf.save(os.path.join(folder, "x"), {"x": object()}))
            whole = os.path.join(folder, "whole")
            wf.save(whole, {"x": wf.arange(1000)})
            with open(whole, "rb") as f:
                data = f.read()
            for cut in (len(data) // 2, len(data) - 1):
                with open(whole, "wb") as f:
                    f.write(data[:cut])
                with self.assertRaises((OSError, ValueError)):
                    wf.load(whole)
            for name in ("x.safetensors", "x.npz", "x.npy"):
                self.refused(ValueError, "holds tensors only; 'x' is a int64", lambda: wf.save(os.path.join(folder, name), {"x": 1}))
                wf.save(os.path.join(folder, name), {"x.y": wf.tensor([1.5, 2.5])})
                found = wf.load(os.path.join(folder, name))
                self.assertEqual([("arr_0" if name.endswith("npy") else "x.y", [1.5, 2.5])], [(k, v.tolist()) for k, v in found.items()])
                self.assertEqual(name.rsplit(".", 1)[1], ("", "safetensors", "npy", "npz")[wf.files.Reader(os.path.join(folder, name)).info["format"]])

    def test_readers_map_cut_and_fill(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.weft")
            wf.save(path, {"w": wf.reshape(wf.arange(100_000, dtype="f32"), (1000, 100)), "n": wf.tensor([1.0, 2.0])})
            for mode in ("copy", "map", "auto"):
                for verify in ("use", "all", "off"):
                    reader = wf.files.Reader(path, mode=mode, verify=verify)
                    self.assertEqual([[701.0, 702.0]], reader.box("w", (7, 1), (1, 2)).tolist())
                    self.assertEqual(99_999.0, float(reader["w"][999, 99]))
            self.refused(IndexError, "a box from 0 of 1001", lambda: reader.box("w", (0, 0), (1001, 1)))
            self.refused(ValueError, "1 starts and 2 sizes", lambda: reader.box("w", (0,), (1, 1)))
            self.refused(ValueError, "mode is 'read'; it is one of copy, map, auto", lambda: wf.files.Reader(path, mode="read"))
            self.refused(OSError, "memory_budget allows 100", lambda: wf.files.Reader(path, memory_budget=100)["w"])
            model = {"n": wf.tensor([0.0, 0.0]), "more": wf.tensor([0.0])}
            self.refused(ValueError, "the file does not fit the tree", lambda: reader.into(model))
            report = reader.into(model, partial=True)
            self.assertEqual({"missing": ["more"], "unexpected": ["w"], "shape_differs": []}, report)
            self.assertEqual([1.0, 2.0], model["n"].tolist())
            half = {"n": wf.tensor([0.0, 0.0], "f16"), "w": wf.zeros((1000, 100))}
            self.refused(ValueError, "weft_load_options.convert converts it", lambda: reader.into(half))
            reader.into(half, convert=True)
            self.assertEqual([1.0, 2.0], half["n"].tolist())

    def test_callbacks_that_raise(self):
        @wf.custom_op("raises", operands=["f64[n...]"], results=["f64[n...]"])
        def raises(x, y):
            raise KeyError("mine")

        y = raises(wf.tensor([1.0], "f64"))
        frames, trace = [], None
        try:
            y.tolist()
        except KeyError as error:
            trace = error.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        self.assertEqual(["raises"], frames[-1:])
        self.assertEqual([2.0], (wf.tensor([1.0]) + 1).tolist())

    def test_libraries_that_are_not_there_or_not_weft(self):
        env = {"LIBWEFT_PATH": "/nowhere/libweft.so.1"}
        code = "try:\n    import libweft\nexcept ImportError as error:\n    print(error)"
        _, out, error = support.run(code, **env)
        order = "the argument --library of python -m libweft, LIBWEFT_PATH, the package's own folder, the system's loader"
        self.assertIn("looked for, in this order: " + order, out)
        self.assertIn("/nowhere/libweft.so.1: there is no such file", out)
        with open("/proc/self/maps", encoding="utf-8") as f:
            libc = next(line.split()[-1] for line in f if "libc.so.6" in line or "/libc-" in line)
        _, out, error = support.run(code, LIBWEFT_PATH=libc)
        self.assertIn("it is not Weft: it has no weft_abi_version", out)
        with tempfile.TemporaryDirectory() as folder:
            source, made = os.path.join(folder, "old.c"), os.path.join(folder, "libweft.so.1")
            with open(source, "w", encoding="ascii") as f:
                f.write("unsigned weft_abi_version(void) { return VERSION; }")
            for version, text in (
                (0x10000, "it is too old: its ABI is 1.0"),
                (0x20000, "its ABI is 2.0, and this package speaks ABI 1"),
            ):
                if subprocess.run(
                    ["cc", "-shared", "-fPIC", "-DVERSION=%d" % version, "-o", made, source], check=False
                ).returncode:
                    self.skipTest("no C compiler")
                _, out, error = support.run(code, LIBWEFT_PATH=folder)
                self.assertIn(text, out)

    def test_no_page_text_or_error_installs_another_project(self):
        """`weft` on the registry is somebody else's: pip's name is libweft."""
        wrong = re.compile(r"pip3? install (\S+ )*weft(?![-_\w])|import weft$|python3? -m weft\b", re.MULTILINE)
        looked = 0
        for folder in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "bindings", "examples", "include", "src", "scripts"):
            path = os.path.join(support.SOURCE, folder)
            for where, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), (), [os.path.basename(path)])]:
                for name in names:
                    if not name.endswith((".py", ".pyi", ".md", ".h", ".hpp", ".cc", ".json", ".cpp", ".c", ".toml", ".ipynb")):
                        continue
                    with open(os.path.join(where, name), encoding="utf-8") as f:
                        found = wrong.search(f.read())
                    self.assertIsNone(found, "%s says %r" % (os.path.join(where, name), found and found.group(0)))
                    looked += 1
        self.assertGreater(looked, 500)
        self.assertTrue(wrong.search("run pip install weft to") and wrong.search("pip install -U weft\n") and not wrong.search("pip install weft-torch"))


class Doctor(unittest.TestCase):
    def test_the_library_of_an_argument_goes_before_that_of_the_environment(self):
        env = {**os.environ, "LIBWEFT_PATH": "/nowhere/of/the/environment"}
        if "LIBWEFT_INSTALLED" not in os.environ:
            env["PYTHONPATH"] = support.PACKAGE

        def doctor(*arguments):
            return subprocess.run(
                [sys.executable, "-m", "libweft", *arguments],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            ).stdout

        path = os.path.abspath(wf.library_path())
        for arguments in (("--library", path), ("--library=" + path,)):
            said = doctor(*arguments, "doctor")
            self.assertIn("from " + path, said)
            self.assertIn("a sum is as it should be", said)
        said = doctor("--library", "/nowhere/of/the/argument", "doctor")
        self.assertIn("the argument --library: /nowhere/of/the/argument: there is no such file", said)
        self.assertIn("the environment variable LIBWEFT_PATH: /nowhere/of/the/environment", doctor("doctor"))

    def test_commands(self):
        env = {**os.environ, **({} if "LIBWEFT_INSTALLED" in os.environ else {"PYTHONPATH": support.PACKAGE})}
        with tempfile.TemporaryDirectory() as folder:
            path, function = os.path.join(folder, "state"), os.path.join(folder, "f")
            wf.save(path, {"layer": {"w": wf.ones((2, 3))}}, step=4)
            wf.function(lambda x: x + 1).trace(wf.zeros((2,))).save(function)
            for arguments, status, text in (
                (["doctor"], 0, "a sum is as it should be"),
                (["show", path], 0, "layer.w"),
                (["show", function], 0, "add"),
                (["run", function], 0, "[1. 1.]"),
                (["show", path + "x"], 1, "No such file"),
                (["fly"], 2, "invalid choice"),
            ):
                done = subprocess.run(
                    [sys.executable, "-m", "libweft", *arguments],
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                    timeout=100,
                )
                self.assertEqual(status, done.returncode, done.stdout)
                self.assertIn(text, done.stdout)


if __name__ == "__main__":
    unittest.main()
