"""Operations of one's own: a function of the C library, and one of Python with a gradient. Both are parts of compiled
programs.

pip install libweft
python3 custom_op.py
"""

import math

import libweft as wf

hypot = wf.custom_op("hypot", "double(double, double)", library="libm.so.6", symbol="hypot")


def gradient(x, y, dy):
    """Recorded with operations; x and y are the operand and the result of the call, dy what arrives."""
    return dy * 2 / math.sqrt(math.pi) * wf.exp(-x * x)


@wf.custom_op("python_erf", operands=["f64[n...]"], results=["f64[n...]"], gradient=gradient)
def erf(x, out):
    """Gets the tensors' memory as arrays (NumPy's where it is installed) and writes into the last one."""
    for i in range(len(x)):
        out[i] = math.erf(x[i])


x = wf.tensor([0.0, 0.5, 1.0], "f64")
print("hypot   ", hypot(x, wf.full((3,), 1.0, dtype="f64")).tolist())
print("erf     ", erf(x).tolist())
print("error   ", float(wf.abs(erf(x) - wf.ops.erf(x)).max()))
slope = wf.grad(lambda v: erf(v).sum())(x)
exact = wf.grad(lambda v: wf.ops.erf(v).sum())(x)
print("gradient", slope.tolist(), float(wf.abs(slope - exact).max()))
