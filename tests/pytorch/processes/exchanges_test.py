"""Collectives between processes, each compared with what PyTorch's CPU makes of all inputs in one process."""
import os
import tempfile
import unittest

import begin
import support

# The values of each process, as every process can make them, and helpers for the comparison.
DATA = """
def value(rank, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank + 1)
    drawn = torch.randn(shape, generator=generator) * 4
    return drawn.to(dtype) if dtype != torch.bool else drawn > 0
def equal(got, expected):
    got = got.detach().cpu()
    assert got.shape == expected.shape and got.dtype == expected.dtype, (got, expected)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
def all_of(count, *shape, **kind):
    return torch.stack([value(rank, *shape, **kind) for rank in range(count)])
device = xm.xla_device()
count = xm.xrt_world_size()
mine = lambda *shape, **kind: value(index, *shape, **kind).to(device)
"""


class Collectives(unittest.TestCase):

    def _runs(self, body, count=2, **more):
        call = f"xmp.spawn(f, args=({list(more.pop('args', ()))},), nprocs={count}, start_method='fork')"
        return support.check(self, support.run(begin.program(DATA + body, call), **more))

    def test_all_reduce(self):
        self._runs("""
for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
    given = all_of(count, 5, 3, dtype=dtype)
    equal(xm.all_reduce(xm.REDUCE_MIN, mine(5, 3, dtype=dtype)), given.amin(0))
    equal(xm.all_reduce(xm.REDUCE_MAX, mine(5, 3, dtype=dtype)), given.amax(0))
    if dtype != torch.bfloat16:
        equal(xm.all_reduce(xm.REDUCE_SUM, mine(5, 3, dtype=dtype)), given.sum(0).to(dtype))
        equal(xm.all_reduce(xm.REDUCE_MUL, mine(5, 3, dtype=dtype)), given.prod(0).to(dtype))
flags = all_of(count, 9, dtype=torch.bool)
equal(xm.all_reduce(xm.REDUCE_AND, mine(9, dtype=torch.bool)), flags.all(0))
equal(xm.all_reduce(xm.REDUCE_OR, mine(9, dtype=torch.bool)), flags.any(0))
tensor = mine(4)
reduced = xm.all_reduce(xm.REDUCE_SUM, tensor, scale=0.25)
equal(reduced, all_of(count, 4).sum(0) * 0.25)
equal(tensor, value(index, 4))
equal(xm.all_reduce(xm.REDUCE_SUM, mine(4, 6).t()[1:5:2]), all_of(count, 4, 6).sum(0).t()[1:5:2])
""", count=4)

    def test_a_list_changes_in_place_in_a_few_exchanges(self):
        """Of many shapes and dtypes, views, what has no elements, and what is larger than a bucket."""
        self._runs("""
from unittest import mock
from torch_xla import _collectives, _weft
shapes = [(3, 2 + at % 5) for at in range(150)] + [(), (0,), (0, 4), (7,)]
tensors = [mine(*shape) for shape in shapes] + [mine(5, dtype=torch.float64), mine(300, 300)]
base = mine(6, 4)
tensors.append(base.t()[1:3])
expected = [all_of(count, *shape).sum(0) * 0.5 for shape in shapes]
expected += [all_of(count, 5, dtype=torch.float64).sum(0) * 0.5, all_of(count, 300, 300).sum(0) * 0.5]
rest = value(index, 6, 4)
rest.t()[1:3] = all_of(count, 6, 4).sum(0).t()[1:3] * 0.5
with mock.patch.object(_collectives, "BUCKET_BYTES", 100_000), \\
     mock.patch.object(_weft.job.Job, "all_reduce", autospec=True, side_effect=_weft.job.Job.all_reduce) as calls:
    assert xm.all_reduce(xm.REDUCE_SUM, tensors, scale=0.5) is tensors
# One for most of them, one for the large one, one for what comes behind it, one for the other dtype.
assert calls.call_count == 4, calls.call_count
for got, want in zip(tensors, expected):
    equal(got, want)
equal(base, rest)
xm.all_reduce(xm.REDUCE_SUM, [])
""")

    def test_buckets(self):
        from torch_xla import _collectives
        import torch
        tensors = [torch.empty(size, dtype=torch.float32, device="meta") for size in (10, 10, 30, 5, 100, 1)]
        self.assertEqual([[tensor.numel() for tensor in one] for one in _collectives.buckets(tensors, 160)],
                         [[10, 10], [30, 5], [100], [1]])
        resnet18 = [torch.empty(11_689_512 // 62, device="meta") for _ in range(62)]
        self.assertEqual(len(_collectives.buckets(resnet18)), 2)

    def test_all_gather(self):
        self._runs("""
given = all_of(count, 2, 3)
equal(xm.all_gather(mine(2, 3)), given.reshape(2 * count, 3))
equal(xm.all_gather(mine(2, 3), dim=1), torch.cat(list(given), 1))
equal(xm.all_gather(mine(2, 3), dim=-2, groups=[list(range(count))]), torch.cat(list(given), 0))
output = torch.zeros(2, 3 * count, device=device)
assert xm.all_gather(mine(2, 3), dim=1, output=output) is output
equal(output, torch.cat(list(given), 1))
one, two = xm.all_gather([mine(2), mine(3, 1)])
equal(one, all_of(count, 2).reshape(-1)), equal(two, all_of(count, 3, 1).reshape(-1, 1))
""", count=3)

    def test_reduce_scatter(self):
        self._runs("""
given = all_of(count, 4, 6)
equal(xm.reduce_scatter(xm.REDUCE_SUM, mine(4, 6), 0.5, 1, count), (given.sum(0) * 0.5).chunk(count, 1)[index])
equal(xm.reduce_scatter(xm.REDUCE_MAX, mine(4, 6), 1.0, 0, count), given.amax(0).chunk(count, 0)[index])
output = torch.zeros(4, 3, device=device)
assert xm.reduce_scatter(xm.REDUCE_SUM, mine(4, 6), 1.0, -1, count, output=output) is output
equal(output, given.sum(0).chunk(count, 1)[index])
for arguments, error in (((xm.REDUCE_SUM, mine(4, 6), 1.0, 0, 3), "shard_count is 3, and 2 processes take part"),
                         ((xm.REDUCE_SUM, mine(5, 6), 1.0, 0, 2), "5 elements along dimension 0 cannot be cut into 2")):
    try: xm.reduce_scatter(*arguments)
    except ValueError as caught: assert error in str(caught), caught
    else: raise AssertionError(error)
""")

    def test_all_to_all(self):
        self._runs("""
given = all_of(count, 4, 6)
for split, concat in ((0, 0), (0, 1), (1, 0), (1, 1)):
    equal(xm.all_to_all(mine(4, 6), split, concat, count),
          torch.cat([value(rank, 4, 6).chunk(count, split)[index] for rank in range(count)], concat))
""")

    def test_broadcast(self):
        self._runs("""
tensors = [mine(3), mine(2, 2, dtype=torch.int64), mine(5)[1:3]]
assert xm.collective_broadcast(tensors, root_ordinal=1) is None
equal(tensors[0], value(1, 3)), equal(tensors[1], value(1, 2, 2, dtype=torch.int64)), equal(tensors[2], value(1, 5)[1:3])
torch.manual_seed(index)
model = torch.nn.BatchNorm1d(3).to(device)
model.running_mean.add_(index + 1), model.num_batches_tracked.add_(index)
model.weight.data.mul_(index + 2)
xm.broadcast_master_param(model)
equal(model.weight, torch.full((3,), 2.0)), equal(model.running_mean, torch.ones(3))
equal(model.num_batches_tracked, torch.tensor(0))
""", count=3)

    def test_groups(self):
        """Each is a job of its own, by the order in which it names its processes; one process alone needs none."""
        self._runs("""
groups = [[0, 2], [3, 1]]
own = next(group for group in groups if index in group)
given = torch.stack([value(rank, 4) for rank in own])
for _ in range(2):
    equal(xm.all_reduce(xm.REDUCE_SUM, mine(4), groups=groups), given.sum(0))
    equal(xm.all_gather(mine(4), groups=groups), given.reshape(-1))
    equal(xm.reduce_scatter(xm.REDUCE_SUM, mine(4), 1.0, 0, 2, groups=groups), given.sum(0).chunk(2)[own.index(index)])
tensors = [mine(4)]
xm.collective_broadcast(tensors, root_ordinal=1, groups=groups)
equal(tensors[0], given[1])
equal(xm.all_reduce(xm.REDUCE_SUM, mine(4), groups=[[2, 1, 0], [3]]), value(3, 4) if index == 3 else all_of(3, 4).sum(0))
equal(xm.all_gather(mine(4), groups=[[3, 2, 1, 0]]), all_of(4, 4).flip(0).reshape(-1))
parameter = torch.nn.Parameter(mine(2))
parameter.grad = mine(4)[:2].clone()
xm.reduce_gradients(torch.optim.SGD([parameter], lr=0.1), groups=groups)
equal(parameter.grad, given.mean(0)[:2])
for wrong in ([[0, 1]], [[0, 1], [1, 2, 3]], [[0, 1, 2, 3, 4]]):
    try: xm.all_reduce(xm.REDUCE_SUM, mine(4), groups=wrong)
    except ValueError as caught: assert "have to name each process once, and there are 4, 0 to 3" in str(caught), caught
    else: raise AssertionError(wrong)
assert xm.rendezvous("half", bytes([index]), replicas=own) == [bytes([rank]) for rank in sorted(own)]
""", count=4)

    def test_gradients(self):
        """Of the sum of what all processes differentiate, beside autograd over all of it in one process."""
        self._runs("""
import torch_xla.core.functions as xf
inputs = [value(rank, 4, 2).requires_grad_() for rank in range(count)]
weights = [value(10 + rank, 4, 2) for rank in range(count)]
wide = [value(20 + rank, 4 * count, 2) for rank in range(count)]
for function, judge, factors in (
        (lambda x: xf.all_reduce(xm.REDUCE_SUM, x, scale=0.5), lambda all: torch.stack(all).sum(0) * 0.5, weights),
        (lambda x: xf.all_reduce(xm.REDUCE_MAX, x), lambda all: torch.stack(all).amax(0), weights),
        (lambda x: xf.all_reduce(xm.REDUCE_MIN, x), lambda all: torch.stack(all).amin(0), weights),
        (lambda x: xf.all_gather(x), lambda all: torch.cat(all), wide),
        (lambda x: xf.all_gather(x.t(), dim=1), lambda all: torch.cat([one.t() for one in all], 1), [one.t() for one in wide])):
    expected, = torch.autograd.grad(sum((judge(inputs) * factor).sum() for factor in factors), [inputs[index]])
    own = mine(4, 2).requires_grad_()
    result = function(own)
    equal(result, judge(inputs).detach())
    got, = torch.autograd.grad((result * factors[index].to(device)).sum(), [own])
    equal(got, expected)
assert not xm.all_reduce(xm.REDUCE_SUM, mine(2).requires_grad_()).requires_grad
""")

    def test_rendezvous_and_mesh_reduce(self):
        with tempfile.TemporaryDirectory() as folder:
            self._runs("""
assert xm.rendezvous("plain") == [b""] * count
payload = bytes([index]) * (1000 * index)
assert xm.rendezvous("payload", payload) == [bytes([rank]) * (1000 * rank) for rank in range(count)]
xr.initialize_cache(args[0][0])  # Who only met the others has not used the device.
assert xm.mesh_reduce("loss", 1.0 + index, max) == float(count)
given = {"t": mine(3), "n": [index]}
got = xm.mesh_reduce("tree", given, lambda all: (torch.stack([one["t"] for one in all]), [one["n"] for one in all]))
equal(got[0], all_of(count, 3))
assert got[1] == [[rank] for rank in range(count)], got[1]
""", count=3, args=[folder])

    def test_refusals_leave_the_others_alone(self):
        """What is refused before a call is made breaks nothing."""
        self._runs("""
for call, error, text in (
        (lambda: xm.all_reduce("mean", mine(1)), ValueError, "'mean' is not one of"),
        (lambda: xm.all_reduce("sum", torch.ones(1)), RuntimeError, "Input tensor is not an XLA tensor: torch.FloatTensor"),
        (lambda: xm.collective_broadcast([mine(1)], root_ordinal=2), ValueError, "there are 2, 0 to 1"),
        (lambda: xm.rendezvous("x", replicas=[5]), ValueError, "names processes that do not exist"),
        (lambda: xm.rendezvous("x", replicas=[1 - index]), ValueError, "is none of the replicas"),
        (lambda: xm.rendezvous("x", "text"), TypeError, "bytes")):
    if index == 0:
        try: call()
        except error as caught: assert text in str(caught), caught
        else: raise AssertionError(text)
equal(xm.all_reduce(xm.REDUCE_SUM, mine(2)), all_of(count, 2).sum(0))
""")


class Saving(unittest.TestCase):

    def _runs(self, body, folder):
        call = "xmp.spawn(f, args=(sys.argv[1],), nprocs=2, start_method='fork')"
        return support.run(begin.program(DATA + body, call), folder)

    def test_the_master_writes_and_all_find_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self._runs("""
import torch_xla.utils.serialization as xser
folder = args[0]
for save, load, name in ((xm.save, torch.load, "a.pt"), (xser.save, xser.load, "b.weft")):
    for options in ({}, {"global_master": True}):
        path = f"{folder}/{len(options)}{name}"
        save({"w": mine(3), "rank": index}, path, **options)
        loaded = load(path)
        equal(loaded["w"], value(0, 3))
        assert loaded["rank"] == 0
    path = f"{folder}/{index}-own-{name}"
    save({"w": mine(3)}, path, master_only=False)
    equal(load(path)["w"], value(index, 3))
""", folder)
            support.check(self, done)
            self.assertEqual(sorted(os.listdir(folder)), ["0-own-a.pt", "0-own-b.weft", "0a.pt", "0b.weft", "1-own-a.pt",
                                                          "1-own-b.weft", "1a.pt", "1b.weft"])

    def test_a_master_that_cannot_write_is_heard_of_by_all(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self._runs("""
try: xm.save(mine(3), args[0] + "/nothing/x.pt")
except (OSError, RuntimeError) as error: say(index, type(error).__name__, error)
say(index, xm.rendezvous("goes on"))
""", folder)
            found = begin.ranks(support.check(self, done))
            self.assertRegex(found[0][0], "^FileNotFoundError .*nothing/x.pt")
            self.assertRegex(found[1][0], "^RuntimeError save: process 0 failed: FileNotFoundError: .*nothing/x.pt")
            self.assertEqual([found[0][1], found[1][1]], ["[b'', b'']"] * 2)


if __name__ == "__main__":
    unittest.main()
