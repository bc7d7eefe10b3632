"""Fits a line by several processes: the program of examples/c/several_processes.c by ctypes, without a binding.

    weft launch -n 4 -- python several_processes.py --library PATH/libweft.so.1

Each process has a part of the points, and all take the same steps, since they exchange the mean of their gradients.
"""
import argparse
import ctypes as c
import sys

F32, SUM = 0x12002, 0
POINTS, STEPS = 200, 100
SIZE = c.c_size_t


class JobInfo(c.Structure):
    """weft_job_info."""
    _fields_ = [("struct_size", SIZE), ("next", c.c_void_p), ("rank", c.c_int32), ("size", c.c_int32), ("local_rank", c.c_int32),
                ("local_size", c.c_int32), ("incarnation", c.c_int32), ("reserved", c.c_int32), ("source", c.c_char_p),
                ("source_length", c.c_uint64)]


class Weft:
    """The library, with errors as exceptions; `made` is for calls whose last argument is what comes out."""

    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.weft_error_message.restype = c.c_char_p

    def __call__(self, name, *arguments):
        function = getattr(self.lib, name)
        function.restype = c.c_void_p
        error = c.c_void_p(function(*arguments))
        if error:
            text = self.lib.weft_error_message(error, None).decode()
            self.lib.weft_error_release(error)
            raise RuntimeError(text)

    def made(self, name, *arguments):
        out = c.c_void_p()
        self(name, *arguments, c.byref(out))
        return out

    def release(self, *tensors):
        for tensor in tensors:
            self.lib.weft_tensor_release(tensor)


def make_points(info):
    """This process's points of y = 1.7 x - 0.4 and a little noise: number rank, rank + size, ... of all."""
    noise, xs, ys = 1, [], []
    for at in range(POINTS):
        noise = (noise * 1664525 + 1013904223) % 2**32
        if at % info.size == info.rank:
            xs.append(-1 + 2 * at / (POINTS - 1))
            ys.append(1.7 * xs[-1] - 0.4 + 0.1 * ((noise >> 8) / 8388608 - 1))
    return xs, ys


def handles(*tensors):
    return (c.c_void_p * len(tensors))(*(tensor.value for tensor in tensors))


def differentiate(weft, ctx, w, x, y):
    """The gradients of the mean of the squared errors of w[0] x + w[1], over the points of this process."""
    scaled = weft.made("weft_mul", ctx, x, w[0])
    line = weft.made("weft_add", ctx, scaled, w[1])
    error = weft.made("weft_sub", ctx, line, y)
    square = weft.made("weft_square", ctx, error)
    loss = weft.made("weft_mean", ctx, square, None)
    grads = (c.c_void_p * 2)()
    weft("weft_grad", ctx, loss, None, handles(*w), SIZE(2), grads)
    weft.release(scaled, line, error, square, loss)
    return [c.c_void_p(one) for one in grads]


def average(weft, ctx, job, share, grads):
    """The mean over the processes, in one exchange for both gradients."""
    both = weft.made("weft_stack", ctx, handles(*grads), SIZE(2), None)
    total = weft.made("weft_job_all_reduce", job, both, c.c_int(SUM))  # waits for the others
    mean = weft.made("weft_mul", ctx, total, share)
    out = []
    for at in range(2):
        bounds = [(c.c_int64 * 1)(value) for value in (at, at + 1, 1)]
        part = weft.made("weft_slice", ctx, mean, bounds[0], SIZE(1), bounds[1], SIZE(1), bounds[2], SIZE(1))
        out.append(weft.made("weft_reshape", ctx, part, None, SIZE(0)))
        weft.release(part)
    weft.release(both, total, mean, *grads)
    return out


def tensor_of(weft, ctx, values):
    data = (c.c_float * len(values))(*values)
    return weft.made("weft_tensor_from_host", ctx, None, c.c_int(F32), (c.c_int64 * 1)(len(values)), SIZE(1), data,
                     SIZE(c.sizeof(data)))


def train(weft):
    ctx = weft.made("weft_context_create", None)
    job = weft.made("weft_job_join", None)  # who this process is says `weft launch`; alone it is 0 of 1
    info = JobInfo(struct_size=c.sizeof(JobInfo))
    weft("weft_job_read_info", job, c.byref(info))
    x, y = (tensor_of(weft, ctx, values) for values in make_points(info))
    share, *w = (weft.made("weft_tensor_from_f64", ctx, c.c_int(F32), c.c_double(value)) for value in (1 / info.size, 0, 0))
    for weight in w:
        weft("weft_tensor_require_grad", weight, c.c_int(1))
    sgd = weft.made("weft_sgd_create", ctx, handles(*w), SIZE(2), None)
    for _ in range(STEPS):
        grads = average(weft, ctx, job, share, differentiate(weft, ctx, w, x, y))
        weft("weft_optimizer_step", sgd, handles(*grads), SIZE(2), c.c_double(0.1))
        weft.release(*grads)
        weft("weft_sync", ctx, None, None)
    found = [c.c_double(), c.c_double()]
    for weight, value in zip(w, found):
        weft("weft_tensor_item_f64", weight, c.byref(value))
    if info.rank == 0:
        print(f"y = {found[0].value:.5f} x {found[1].value:+.5f}, found by {info.size}")
    weft("weft_job_leave", job)  # when all have come here
    weft.release(*w, share, x, y)
    weft.lib.weft_optimizer_release(sgd)
    weft.lib.weft_job_release(job)
    weft.lib.weft_context_release(ctx)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="libweft.so.1", help="path of the library")
    options = parser.parse_args()
    try:
        train(Weft(options.library))
    except (RuntimeError, OSError) as error:
        sys.exit(f"several_processes: {error}")


if __name__ == "__main__":
    main()
