"""torch.distributed's process groups `xla` over the job: each collective beside torch's own `gloo` on the CPU, and DDP."""
import unittest

import begin
import support

BODY = """
import torch.distributed as dist
import torch_xla.distributed.xla_backend
dist.init_process_group("xla", init_method="xla://")
count, device = dist.get_world_size(), xm.xla_device()
assert (dist.get_rank(), count, dist.get_backend()) == (index, xm.xrt_world_size(), "xla")
judge = dist.new_group(backend="gloo")
def value(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(index))
def both(call, *shapes):
    results = []
    for where, group in ((device, dist.group.WORLD), ("cpu", judge)):
        results.append(call([value(*shape).to(where) for shape in shapes], where, group))
    for got, want in zip(*results, strict=True):
        assert got.device.type == "xla"
        torch.testing.assert_close(got.cpu(), want)
"""
COLLECTIVES = BODY + """
def in_place(collective, **options):
    def call(tensors, where, group):
        collective(tensors[0], group=group, **options)
        return tensors
    return call
for operation in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
    both(in_place(dist.all_reduce, op=operation), (3, 2))
both(in_place(dist.broadcast, src=1), (3, 2))
def gathered(tensors, where, group):
    out = [torch.zeros(3, 2, device=where) for _ in range(count)]
    dist.all_gather(out, tensors[0], group=group)
    return out
both(gathered, (3, 2))
def gathered_into(tensors, where, group):
    out = torch.zeros(3 * count, 2, device=where)
    dist.all_gather_into_tensor(out, tensors[0], group=group)
    return [out]
both(gathered_into, (3, 2))
average = value(4).to(device)
dist.all_reduce(average, op=dist.ReduceOp.AVG)
total = value(4)
dist.all_reduce(total, group=judge)
torch.testing.assert_close(average.cpu(), total / count)
scattered = torch.zeros(2, device=device)
dist.reduce_scatter_tensor(scattered, value(2 * count).to(device))
total = value(2 * count)
dist.all_reduce(total, group=judge)
torch.testing.assert_close(scattered.cpu(), total.chunk(count)[index])
parts = [torch.zeros(2, device=device) for _ in range(count)]
dist.all_to_all(parts, [torch.full((2,), float(10 * index + to), device=device) for to in range(count)])
assert [part[0].item() for part in parts] == [float(10 * rank + index) for rank in range(count)], parts
output = torch.zeros(2 * count, device=device)
dist.all_to_all_single(output, torch.arange(2.0 * count, device=device) + 100 * index)
assert output.view(count, 2).tolist() == [[100.0 * rank + 2 * index, 100.0 * rank + 2 * index + 1] for rank in range(count)], output
reduced = value(3).to(device)
dist.reduce(reduced, dst=1)
total = value(3)
dist.all_reduce(total, group=judge)
torch.testing.assert_close(reduced.cpu(), total if index == 1 else value(3))
dist.barrier()
groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
own = torch.full((1,), float(index), device=device)
dist.all_reduce(own, group=groups[index % 2])
assert own.item() == (2.0 if index % 2 == 0 else 4.0), own
for call, text in ((lambda: dist.send(own, dst=(index + 1) % count), "send"), (lambda: dist.all_reduce(own, op=dist.ReduceOp.BXOR), "reduction")):
    try: call()
    except NotImplementedError as error: assert text in str(error), error
    else: raise AssertionError(text)
dist.barrier()
dist.destroy_process_group()
"""
DDP = BODY + """
torch.manual_seed(index)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(device)
model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
expected = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
torch.manual_seed(0)
for layer in (expected[0], expected[2]):
    layer.reset_parameters()
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.5) for one in (model, expected)]
generator = torch.Generator().manual_seed(9)
for step in range(20):
    data, target = torch.rand(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)
    for one, optimizer, x, y in ((model, optimizers[0], data.chunk(count)[index].to(device), target.chunk(count)[index].to(device)),
                                 (expected, optimizers[1], data, target)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(one(x), y).backward()
        optimizer.step()
    xm.mark_step()
for got, want in zip(model.parameters(), expected.parameters()):
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=0, atol=1e-6)
"""


class Backend(unittest.TestCase):

    def _runs(self, body, count):
        support.check(self, support.run(begin.program(body, f"xmp.spawn(f, nprocs={count}, start_method='fork')")))

    def test_collectives(self):
        self._runs(COLLECTIVES, 4)

    def test_ddp_trains_as_one_process(self):
        self._runs(DDP, 2)

    def test_one_process_alone(self):
        support.check(self, support.run(begin.program(BODY + "t = value(2).to(device)\ndist.all_reduce(t)\nboth(lambda t, w, g: t, (2,))",
                                                      "xmp.spawn(f)")))


if __name__ == "__main__":
    unittest.main()
