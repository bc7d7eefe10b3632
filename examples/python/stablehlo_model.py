"""A model that JAX wrote as StableHLO (jax.jit(f).lower(...).as_text()) runs here, and is differentiated.

pip install libweft
python3 stablehlo_model.py ../stablehlo/mlp.mlir
"""

import os
import sys

import libweft as wf
from libweft import nn

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "stablehlo", "mlp.mlir")
    with open(path, encoding="utf-8") as f:
        model = wf.from_stablehlo(f.read())
    print("reads %s" % ", ".join("%s%s" % (dtype, list(shape)) for dtype, shape in model.inputs))
    wf.seed(2)
    x, w, b = wf.random.normal((2, 3)), wf.random.normal((3, 4)), wf.random.normal((4,))
    theirs, ours = model(x, w, b), nn.softmax(nn.relu(x @ w + b))
    print("largest difference %.1e" % wf.abs(theirs - ours).max().item())

    def loss(weights):
        return -wf.log(model(x, weights, b)[:, 1]).sum()

    slope = wf.grad(loss)(w)
    print("loss %.4f, and %.4f one step further" % (loss(w).item(), loss(w - 0.1 * slope).item()))


if __name__ == "__main__":
    main()
