"""The tree's files by path, for tests that read sources instead of running them."""
import os

SOURCE = os.environ.get("WEFT_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))


def tree(tops, endings):
    """{path from the root: text} of the files below some folders whose names end so."""
    files = {}
    for top in tops:
        for root, _, names in os.walk(os.path.join(SOURCE, top)):
            for name in names:
                if name.endswith(endings):
                    full = os.path.join(root, name)
                    with open(full, encoding="utf-8") as handle:
                        files[os.path.relpath(full, SOURCE).replace(os.sep, "/")] = handle.read()
    return files
