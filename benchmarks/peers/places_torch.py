"""The rows of benchmarks/places on PyTorch (eager, two threads)."""
import sys

import torch
import torch.nn.functional as F

from timing import measure, seconds

torch.set_num_threads(2)
torch.manual_seed(0)
TABLES, BATCH, UPDATES, ROWS, WIDTH, ELEMENTS = 26, 4096, 320_000, 20_000, 64, 1_000_000

ONLY = sys.argv[2] if len(sys.argv) > 2 else ""  # what begins so


def floats(*shape, dtype=torch.float32):
    return (torch.rand(*shape) * 2 - 1).to(dtype)


def indices(*shape, below, ordered=False):
    values = torch.randint(0, below, shape)
    return values.sort().values if ordered else values


def bench(name, function, *arguments):
    if not name.startswith(ONLY):
        return
    with torch.no_grad():
        measure(name, "pytorch", lambda: function(*arguments), 1, seconds() / 4)


def rows(name, combine, ordered=False, dtype=torch.float32):
    bench(name, combine, floats(ROWS, WIDTH, dtype=dtype), indices(UPDATES, below=ROWS, ordered=ordered), floats(UPDATES, WIDTH, dtype=dtype))


def largest(x, i, u):
    return x.scatter_reduce(0, i[:, None].expand_as(u), u, "amax")


rows("add-rows", lambda x, i, u: x.index_add(0, i, u))
rows("add-rows-sorted", lambda x, i, u: x.index_add(0, i, u), ordered=True)
rows("add-rows-bf16", lambda x, i, u: x.index_add(0, i, u), dtype=torch.bfloat16)
rows("max-rows", largest)
rows("set-rows", lambda x, i, u: x.index_put((i,), u))
for count, name in ((1000, "1k"), (ELEMENTS, "1m")):
    bench(f"add-elements-{name}", lambda x, i, u: x.index_add(0, i, u), floats(count), indices(ELEMENTS, below=count), floats(ELEMENTS))
bench("set-elements-1m", lambda x, i, u: x.index_put((i,), u), floats(ELEMENTS), indices(ELEMENTS, below=ELEMENTS), floats(ELEMENTS))
bench("bincount", lambda i: torch.bincount(i, minlength=1000), indices(ELEMENTS, below=1000))
bench("add-columns", lambda x, i, u: x.index_add(1, i, u), floats(256, 20_000), indices(8192, below=20_000), floats(256, 8192))
bench("add-along", lambda x, i, u: x.scatter_add(1, i, u), floats(4096, 1000), indices(4096, 100, below=1000), floats(4096, 100))
bench("take-rows", lambda x, i: x.index_select(0, i), floats(ROWS, WIDTH), indices(UPDATES, below=ROWS))
bench("take-elements", lambda x, i: x.index_select(0, i), floats(ELEMENTS), indices(ELEMENTS, below=ELEMENTS))
bench("take-columns", lambda x, i: x.index_select(1, i), floats(256, 20_000), indices(8192, below=20_000))
bench("take-along", lambda x, i: x.gather(1, i), floats(4096, 1000), indices(4096, 100, below=1000))


def gradients(ids, given, count):
    return [torch.ops.aten.embedding_dense_backward(g, i, count, -1, False) for i, g in zip(ids, given)]


for width in (16, 64, 128):
    ids, given = [indices(BATCH, below=10_000) for _ in range(TABLES)], [floats(BATCH, width) for _ in range(TABLES)]
    bench(f"embedding-gradient-{width}", gradients, ids, given, 10_000)
for width in (16, 64):
    if not f"embedding-sgd-{width}".startswith(ONLY):
        continue
    tables = [torch.nn.Parameter(floats(100_000, width)) for _ in range(TABLES)]
    ids, given = [indices(BATCH, below=100_000) for _ in tables], [floats(BATCH, width) for _ in tables]
    sgd = torch.optim.SGD(tables, 1e-3)

    def step(sparse):
        sgd.zero_grad()
        loss = sum((F.embedding(i, table, sparse=sparse) * g).sum() for table, i, g in zip(tables, ids, given))
        loss.backward()
        sgd.step()

    measure(f"embedding-sgd-{width}", "pytorch-sparse", lambda: step(True), 1, seconds() / 4)
    measure(f"embedding-sgd-{width}", "pytorch-dense", lambda: step(False), 1, seconds() / 4)
