"""Data sets and loaders from Python: what they give, going on, errors of callbacks, Ctrl-C, the end of the process; docs/data.md."""

import gzip
import io
import os
import re
import signal
import struct
import sys
import tarfile
import tempfile
import threading
import time
import unittest

import support
from support import needs_numpy, np

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


def crc32c(content):
    """Castagnoli's, bit by bit (RFC 3720)."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tfrecord(content):
    def masked(of):
        crc = crc32c(of)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def example(features):
    """tf.train.Example as Protocol Buffers write it."""
    def varint(value):
        value &= (1 << 64) - 1
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def field(number, content):
        return varint(number << 3 | 2) + varint(len(content)) + content

    entries = b""
    for key, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif value.dtype == np.float32:
            feature = field(2, field(1, value.tobytes()))
        else:
            feature = field(3, field(1, b"".join(varint(int(v)) for v in np.atleast_1d(value))))
        entries += field(1, field(1, key.encode()) + field(2, feature))
    return field(1, entries)


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

    @needs_numpy
    def test_records_of_tensorflow_are_a_data_set(self):
        data = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
        records = [{"x": data[i], "label": np.int64(i - 2), "name": b"item%d" % i} for i in range(4)]
        with tempfile.TemporaryDirectory() as folder:
            for name, part in (("s-1.tfrecord", records[:1]), ("s-2.tfrecord.gz", records[1:])):
                write = gzip.open if name.endswith("gz") else open
                with write(os.path.join(folder, name), "wb") as f:
                    f.write(b"".join(tfrecord(example(record)) for record in part))
            joined = wf.data.Dataset.open(os.path.join(folder, "s-*"))
            with self.assertRaisesRegex(FileNotFoundError, "no file matches"):
                wf.data.Dataset.open(os.path.join(folder, "t-*"))
        self.assertEqual([("label", "i64", ()), ("name", "u8", (5,)), ("x", "f32", (3,))],
                         [(name, str(t), shape) for name, t, shape in joined.fields])
        label, name, x = wf.data.Loader(joined, size=4).next()
        self.assertEqual(([-2, -1, 0, 1], b"item0item1item2item3"), (label.tolist(), bytes(np.asarray(name))))
        np.testing.assert_array_equal(data, np.asarray(x))

    @needs_numpy
    def test_tar_archives_as_webdataset_has_them_are_a_data_set(self):
        images = np.arange(4 * 6, dtype=np.uint8).reshape(4, 2, 3)
        wide = np.asfortranarray(np.arange(8, dtype=">f8").reshape(4, 2))
        with tempfile.TemporaryDirectory() as folder:
            for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
                path = os.path.join(folder, "%d.tar.gz" % form)
                with tarfile.open(path, "w:gz", format=form) as archive:
                    for i in range(4):
                        for extension, value in (("image.npy", images[i]), ("CLS", i - 1), ("w.npy", wide[i:i + 1]), ("raw", b"ab%d" % i)):
                            member = tarfile.TarInfo("%s/%03d.%s" % ("long" * (30 if form != tarfile.USTAR_FORMAT else 3), i, extension))
                            content = io.BytesIO()
                            if extension.endswith("npy"):
                                np.save(content, value)
                            else:
                                content.write(value if isinstance(value, bytes) else b"%d\n" % value)
                            member.size = content.tell()
                            archive.addfile(member, io.BytesIO(content.getvalue()))
                with self.subTest(form=form):
                    opened = wf.data.Dataset.open(path)
                    self.assertEqual(["cls", "image.npy", "raw", "w.npy"], [name for name, _, _ in opened.fields])
                    cls, image, raw, w = wf.data.Loader(opened, size=4).next()
                    self.assertEqual(([-1, 0, 1, 2], b"ab0ab1ab2ab3"), (cls.tolist(), bytes(np.asarray(raw))))
                    np.testing.assert_array_equal(images, np.asarray(image))
                    np.testing.assert_array_equal(wide[:, None], np.asarray(w))

    def test_tar_archives_that_differ_are_refused_by_name(self):
        def archive(folder, members):
            path = os.path.join(folder, "a.tar")
            with tarfile.open(path, "w") as made:
                for name, content in members:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    made.addfile(member, io.BytesIO(content))
            return path

        with tempfile.TemporaryDirectory() as folder:
            for members, text in [
                ([("a.jpg", b"12"), ("b.jpg", b"123")], r"b\.jpg is u8\[3\], that of 'a' is u8\[2\].*weft_dataset_create"),
                ([("a.cls", b"1"), ("b.txt", b"1")], "the item 'b' has no .cls"),
                ([("a.cls", b"1"), ("b.cls", b"1"), ("b.txt", b"1")], "the item 'b' has 2 parts, 'a' has 1"),
                ([("a.cls", b"one")], r"a\.cls is no whole number: 'one'"),
                ([("a.npy", b"no array")], r"a\.npy is no array of NumPy"),
                ([("a", b"1")], "'a' has no extension"),
            ]:
                with self.subTest(text), self.assertRaisesRegex(errors.InvalidArgument, text):
                    wf.data.Dataset.open(archive(folder, members))

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
