"""A function as a value: traced once, differentiated, mapped over examples, saved into a file, and loaded by another process.

pip install libweft
python3 functions.py
"""

import os
import subprocess
import sys
import tempfile

import libweft as wf


def distance(x, centre):
    return wf.sqrt(((x - centre) ** 2).sum())


def there(path):
    """The other process does this: it knows the file and nothing of `distance`."""
    f = wf.Function.load(path)
    x, centre = wf.tensor([3.0, 4.0]), wf.tensor([0.0, 0.0])
    print("loaded   ", f)
    print("value    ", f(x, centre).item())
    print("gradient ", f.grad([0])(x, centre).tolist())
    many = f.vmap(3, in_axes=[0, None])
    print("of three ", many(wf.tensor([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]]), centre).tolist())


def main():
    if len(sys.argv) > 1:
        return there(sys.argv[1])
    print(
        "here     ",
        wf.vmap(wf.grad(distance), in_axes=(0, None))(wf.tensor([[3.0, 4.0], [0.0, 2.0]]), wf.zeros((2,))).tolist(),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "distance.weft")
        wf.function(distance).trace(wf.zeros((2,)), wf.zeros((2,))).save(path)
        sys.stdout.flush()
        subprocess.run([sys.executable, os.path.abspath(__file__), path], check=True)


if __name__ == "__main__":
    main()
