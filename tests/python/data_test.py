"""Data sets and loaders from Python: what they give, going on, errors of callbacks, Ctrl-C, the end of the process; docs/data.md."""

import os
import re
import signal
import sys
import tempfile
import threading
import time
import unittest

import support

import libweft as wf
from libweft import _errors as errors


class Squares:
    """Item i: its square, and a pair."""

    def __init__(self, count=10, bad=None, seconds=0.0):
        self.count, self.bad, self.seconds = count, bad, seconds

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.seconds)
        if i == self.bad:
            raise KeyError("item %d is gone" % i)
        return i * i, [float(i), 2.0]


def rows(loader):
    return [batch[0].tolist() for batch in loader]


class Data(unittest.TestCase):
    def test_an_epoch_has_each_item_once_and_differs_from_the_next(self):
        loader = wf.data.Loader(wf.arange(64), size=8, shuffle=True, seed=3)
        first, second = sum(rows(loader), []), sum(rows(loader), [])
        self.assertEqual(list(range(64)), sorted(first))
        self.assertEqual(list(range(64)), sorted(second))
        self.assertNotEqual(first, second)
        self.assertEqual(8, len(loader))

    def test_a_state_goes_on_with_another_batch_and_in_ranks(self):
        whole = sum(rows(wf.data.Loader(wf.arange(96), size=8, shuffle=True, seed=5)), [])
        loader = wf.data.Loader(wf.arange(96), size=8, shuffle=True, seed=5)
        for _ in range(3):
            loader.next()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state.weft")
            wf.save(path, {"loader": loader.state_dict()})
            state = wf.load(path)["loader"]
        self.assertEqual({"seed": 5, "epoch": 0, "position": 24, "items": 96}, state)
        parts = []
        for rank in range(2):
            part = wf.data.Loader(wf.arange(96), size=4, shuffle=True, seed=5, rank=rank, ranks=2)
            part.load_state_dict(state)
            parts.append(rows(part))
        self.assertEqual(whole[24:], sum((a + b for a, b in zip(*parts)), []))

    def test_items_of_python_come_as_their_first_says(self):
        data = wf.data.Dataset.items(Squares())
        self.assertEqual([("", "i64", ()), ("", "f32", (2,))], [(name, str(t), shape) for name, t, shape in data.fields])
        x, pair = wf.data.Loader(data, size=5).next()
        self.assertEqual(([0, 1, 4, 9, 16], [4.0, 2.0]), (x.tolist(), pair.tolist()[4]))

    def test_an_exception_of_an_item_comes_out_as_it_was(self):
        loader = wf.data.Loader(wf.data.Dataset.items(Squares(bad=7)), size=5)
        loader.next()
        with self.assertRaisesRegex(KeyError, "item 7 is gone"):
            loader.next()

    def test_bad_input_says_what_is_wrong(self):
        class NoNumber(Squares):
            def __len__(self):
                return float("nan")

        class Short(Squares):
            def __getitem__(self, i):
                return (i,) if i == 3 else (i, [0.0, 0.0])

        for make, error, text in [
            (lambda: wf.data.Dataset.items(NoNumber()), errors.InvalidType, "a data set needs a length: 'float'"),
            (lambda: wf.data.Dataset.items([]), errors.InvalidArgument, "the data set has no items"),
            (lambda: wf.data.Loader(wf.arange(4), size=0), errors.InvalidArgument, "batch is 0"),
            (lambda: wf.data.Loader(wf.arange(4), size=5), errors.InvalidArgument, "no whole batch of 5"),
            (lambda: wf.data.Loader(wf.arange(2), size=1, weights=[1, float("nan")]), errors.InvalidArgument, "weight 1 is nan"),
            (lambda: wf.data.Loader(wf.arange(2), wf.arange(3), size=1), errors.InvalidArgument, "field 1 has 3 items, field 0 has 2"),
            (lambda: wf.data.Loader(wf.data.Dataset.items(Short()), size=5).next(), errors.InvalidArgument, "item 3 has 1 parts"),
            (lambda: wf.data.Dataset.open(os.path.join(os.sep, "no", "file")), FileNotFoundError, "no/file"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                make()

    def test_a_table_is_a_data_set(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table.csv")
            with open(path, "w", encoding="utf-8") as f:
                f.write("a;b\n1;2\n3;4\n")
            data = wf.data.Dataset.open(path, dtype="f64", separator=";").zip(wf.data.Dataset.of([5, 6]))
        x, y = wf.data.Loader(data, size=2).next()
        self.assertEqual(([[1, 2], [3, 4]], [5, 6]), (x.tolist(), y.tolist()))

    def test_the_lock_of_python_is_free_while_a_loader_waits(self):
        loader = wf.data.Loader(wf.data.Dataset.items(Squares(seconds=0.2)), size=2, threads=1)
        counted, stop = [0], threading.Event()

        def count():
            while not stop.wait(0.005):
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        loader.next()
        stop.set()
        thread.join()
        self.assertGreater(counted[0], 15)

    def test_ctrl_c_ends_a_wait_within_a_tenth_of_a_second(self):
        loader = wf.data.Loader(wf.data.Dataset.items(Squares(seconds=1.0)), size=2)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        at = [0.0]

        def interrupt():
            at[0] = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.2, interrupt).start()
        with self.assertRaises(KeyboardInterrupt):
            loader.next()
        self.assertLess(time.monotonic() - at[0], 0.1)

    def test_a_process_ends_while_threads_are_in_its_items(self):
        code = (
            "import libweft as wf, time\nclass Slow:\n    def __len__(self): return 100\n"
            "    def __getitem__(self, i):\n        time.sleep(0.05)\n        return i\n"
            "loader = wf.data.Loader(wf.data.Dataset.items(Slow()), size=4, prefetch=4)\nprint(loader.next()[0].tolist())\n"
        )
        self.assertEqual((0, "[0, 1, 2, 3]\n", ""), support.run(code))

    def test_the_block_of_the_page_prints_what_it_says(self):
        with open(os.path.join(support.SOURCE, "docs", "data.md"), encoding="utf-8") as f:
            block = re.search(r"^```python\n(.*?)^```", f.read(), re.DOTALL | re.MULTILINE).group(1)
        wanted = block.rpartition("# ")[2]
        self.assertEqual((0, wanted, ""), support.run(block))


if __name__ == "__main__":
    sys.exit(unittest.main())
