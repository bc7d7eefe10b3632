"""The notebooks of examples/python, which are kept as text: turned into notebooks, run by nbclient, and what they show is checked.
WEFT_PICTURES names a folder for their pictures as PNG. Part of `scripts/test --full`."""

import glob
import os
import sys
import tempfile
import unittest

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, HOME)

import support  # noqa: E402

try:
    import cairocffi
    import cairosvg
    import ipykernel  # noqa: F401
    import jupytext
    import nbclient
    import numpy
except ImportError as error:
    raise unittest.SkipTest("%s is not installed" % error.name) from None

FOLDER = os.path.join(support.SOURCE, "examples", "python", "notebooks")


class Notebooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(work.cleanup)
        cls.pictures = os.environ.get("WEFT_PICTURES") or work.name
        os.environ["PYTHONPATH"] = support.PACKAGE  # of the kernel
        os.environ["JUPYTER_PATH"] = os.path.join(sys.prefix, "share", "jupyter")
        os.environ["IPYTHONDIR"] = work.name

    def outputs(self, name):
        """What the cells of a notebook show, in their order: (kind, data)."""
        notebook = jupytext.read(os.path.join(FOLDER, name + ".py"))
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": FOLDER}}).execute()
        out = []
        for cell in notebook.cells:
            for shown in cell.get("outputs", []):
                out += [("text", shown["text"])] if shown.output_type == "stream" else sorted(shown.get("data", {}).items())
        return out

    def picture(self, name, number, text):
        """A picture as an array [height, width, 3] of what a person sees."""
        path = os.path.join(self.pictures, "%s_%d.png" % (name, number))
        cairosvg.svg2png(bytestring=text.encode(), write_to=path)
        surface = cairocffi.ImageSurface.create_from_png(path)
        pixels = numpy.frombuffer(surface.get_data(), numpy.uint8).reshape(surface.get_height(), -1, 4)
        return pixels[:, : surface.get_width(), :3].astype(int)  # a copy: the surface goes

    def checked(self, name, words, pictures):
        shown = self.outputs(name)
        text = "\n".join(data for kind, data in shown if kind == "text")
        for word in words:
            self.assertIn(word, text)
        drawn = [data for kind, data in shown if kind == "image/svg+xml"]
        self.assertEqual(pictures, len(drawn))
        for n, svg in enumerate(drawn):
            pixels = self.picture(name, n, svg)
            self.assertGreater(min(pixels.shape[:2]), 300)
            ink = (pixels != 255).any(axis=2)
            self.assertGreater(ink.mean(), 0.005, "the picture is blank")
            self.assertGreater(len(numpy.unique(pixels.reshape(-1, 3), axis=0)), 20)
            self.assertFalse(ink[:2].any() or ink[-2:].any(), "the picture is cut off")
        return shown, text

    def test_first_steps(self):
        shown, _ = self.checked("first_steps", ["(2, 2) f32", "y = 1.7"], 2)
        tables = [data for kind, data in shown if kind == "text/html"]
        self.assertTrue(any("f32[2, 2] on cpu:0" in data for data in tables), tables)

    def test_two_moons(self):
        _, text = self.checked("two_moons", ["of the test points are right", "call .keep() on it before its step ends"], 1)
        self.assertGreater(float(text.partition(" of the test points")[0].split()[-1]), 0.95)

    def test_every_notebook_is_tested(self):
        names = {os.path.basename(path)[:-3] for path in glob.glob(os.path.join(FOLDER, "*.py"))}
        self.assertEqual(names, {name[5:] for name in dir(self) if name.startswith("test_")} - {"every_notebook_is_tested"})


if __name__ == "__main__":
    unittest.main()
