"""spawn, launch, the wrappers of several processes, and data parallelism by threads."""
import threading
import unittest
from unittest import mock

import support
import torch
import torch_xla
from torch_xla.core import xla_model as xm
from torch_xla.distributed import data_parallel as dp
from torch_xla.distributed import parallel_loader as pl
from torch_xla.distributed import xla_multiprocessing as xmp

DEVICE = torch.device("xla", 0)
BEGIN = ("import torch, torch_xla, torch_xla.core.xla_model as xm\n"
         "import torch_xla.distributed.xla_multiprocessing as xmp\n"
         "def f(index, *args):\n    print(index, *args, torch.ones(2, device=xm.xla_device()).sum().item())\n")


class Spawn(unittest.TestCase):

    def _prints(self, line, expected):
        done = support.run(BEGIN + line)
        self.assertEqual(support.check(self, done), expected)
        return done.stderr

    def test_runs_once(self):
        self._prints("print(xmp.spawn(f, args=('a', 3)))", "0 a 3 2.0\nNone\n")
        self._prints("xmp.spawn(f, nprocs=1, start_method='fork')", "0 2.0\n")
        self._prints("torch_xla.launch(f, args=('a',))", "0 a 2.0\n")
        self._prints("torch_xla.launch(f, debug_single_process=True)", "0 2.0\n")
        self._prints("xmp.spawn(f)\nxmp.spawn(f)", "0 2.0\n0 2.0\n")

    def test_a_second_fork_behind_a_function_that_ran_here(self):
        done = support.run(BEGIN + "xmp.spawn(f)\nxmp.spawn(f, nprocs=2, start_method='fork')")
        self.assertIn("Runtime is already initialized by an earlier function of xmp.spawn", done.stderr)
        self.assertEqual(done.stdout, "0 2.0\n")

    def test_more_processes_than_devices(self):
        with mock.patch.object(torch_xla._state, "kind", lambda: "TPU"), mock.patch.object(xmp._library, "used", lambda: False), \
             self.assertRaisesRegex(ValueError, "nprocs=8, and there is 1 TPU device: each process needs its own"):
            xmp.spawn(print, nprocs=8)

    def test_device_used_before(self):
        for call in ("xmp.spawn(f)", "xmp.spawn(f, nprocs=8)", "torch_xla.launch(f)"):
            done = support.run(BEGIN + "torch.ones(1, device=xm.xla_device())\n" + call)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Runtime is already initialized. Do not use the XLA device before calling xmp.spawn", done.stderr)
        self._prints("torch.ones(1, device=xm.xla_device())\nxmp.spawn(f, nprocs=1)", "0 2.0\n")
        self._prints("print(xm.xla_device())\nxmp.spawn(f)", "xla:0\n0 2.0\n")

    def test_exception_is_the_functions_own(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            xmp.spawn(lambda index: {}["mine"], nprocs=1)

    def test_arguments(self):
        with self.assertRaisesRegex(ValueError, "start_method 'thread' is not one of spawn, fork, forkserver"):
            xmp.spawn(print, start_method="thread")
        with self.assertRaisesRegex(ValueError, "nprocs has to be None or 1 or more, not 0"):
            xmp.spawn(print, nprocs=0)

    def test_nothing_is_left_to_join(self):
        """Lightning asks for join=False, and joins what it is given unless that is None."""
        ran = []
        self.assertIsNone(xmp.spawn(ran.append, nprocs=1, join=False, daemon=True))
        self.assertEqual(ran, [0])

    def test_wrappers(self):
        wrapper = xmp.MpModelWrapper(torch.nn.Linear(2, 2))
        model = wrapper.to(DEVICE)
        self.assertIsInstance(model, torch.nn.Linear)
        self.assertEqual(model.weight.device, DEVICE)
        self.assertEqual(xmp.MpSerialExecutor().run(lambda: 42), 42)

    def test_serial_executor_runs_one_at_a_time(self):
        executor, inside, most = xmp.MpSerialExecutor(), [], []

        def work():
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.02)
            inside.pop()

        threads = [threading.Thread(target=executor.run, args=(work,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(most, [1, 1, 1, 1])


# A thread for each of four devices; what they come to is compared with one device that has all their batches at once.
THREADS = """
import torch_xla.distributed.data_parallel as dp
def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
generator = torch.Generator().manual_seed(1)
batches = [(torch.rand(4, 6, generator=generator), torch.randint(0, 3, (4,), generator=generator)) for _ in range(40)]
parallel = dp.DataParallel(net, device_ids=xm.get_xla_supported_devices())
count = len(parallel.devices)
def loop(model, loader, device, context):
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), 0
    for index, (data, target) in loader:
        assert data.device == device == xm.xla_device() and next(model.parameters()).device == device
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        xm.optimizer_step(optimizer)
        seen += 1
    one = torch.full((2,), float(device.index), device=device)
    return (seen, xm.all_reduce(xm.REDUCE_MAX, one).tolist(), xm.all_gather(one).tolist(),
            xm.reduce_scatter(xm.REDUCE_SUM, one.repeat(2), 1.0, 0, count).tolist(), xm.all_to_all(one.repeat(2), 0, 0, count).tolist())
results = parallel(loop, batches)
for index, result in enumerate(results):
    assert result == (40 // count, [count - 1.0] * 2, [float(at) for at in range(count) for _ in range(2)],
                      [sum(range(count))] * (4 // count), [float(at) for at in range(count) for _ in range(4 // count)]), result
expected = net()
optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.5)
for at in range(0, 40, count):
    optimizer.zero_grad()
    data, target = (torch.cat(parts) for parts in zip(*batches[at:at + count]))
    torch.nn.functional.cross_entropy(expected(data), target).backward()
    optimizer.step()
for model in parallel.models:
    for got, want in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=0, atol=1e-6)
def fails(model, loader, device, context):
    for index, (data, target) in loader:
        if device.index == 1:
            raise KeyError("of one thread")
        xm.all_reduce(xm.REDUCE_SUM, data)
try: parallel(fails, batches)
except KeyError as error: print(error, xm.all_reduce(xm.REDUCE_SUM, torch.ones(1, device="xla")).item())
"""


class Backend(unittest.TestCase):

    def test_process_group(self):
        """A ProcessGroupXla of this process alone; more are in tests/pytorch/processes."""
        program = ("import torch, torch.distributed as dist, torch_xla.distributed.xla_backend\n"
                   "assert 'xla' in dist.Backend.backend_list\n"
                   "dist.init_process_group('xla', store=dist.HashStore(), rank=0, world_size={})\n"
                   "t = torch.ones(2, device='xla')\ndist.all_reduce(t)\nprint(t.tolist())\n")
        self.assertEqual(support.check(self, support.run(program.format(1))), "[1.0, 1.0]\n")
        done = support.run(program.format(2))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a group of 2 processes, and the world of torch_xla has 1: start them by xmp.spawn", done.stderr)


class DataParallel(unittest.TestCase):

    def setUp(self):
        self.loader = [(torch.full((2, 3), float(at)), torch.tensor([at, at])) for at in range(4)]

    def test_loop(self):
        module = torch.nn.Linear(3, 2)
        parallel = dp.DataParallel(module, device_ids=xm.get_xla_supported_devices())
        self.assertEqual(parallel.devices, [DEVICE])
        self.assertEqual(parallel.models[0].weight.device, DEVICE)
        self.assertEqual(module.weight.device.type, "cpu")

        def loop(model, loader, device, context):
            context.calls = context.getattr_or("calls", lambda: 0) + 1
            seen = []
            for index, (data, target) in loader:
                self.assertEqual((data.device, target.device, device), (DEVICE, DEVICE, xm.xla_device()))
                model(data)
                seen.append((index, target[0].item()))
            return seen, context.calls, threading.current_thread() is threading.main_thread()

        expected = [(at, at) for at in range(4)]
        self.assertEqual(parallel(loop, self.loader), [(expected, 1, False)])
        self.assertEqual(parallel(loop, self.loader), [(expected, 2, False)])  # The context stays.

    def test_a_thread_for_each_device(self):
        for count in ("2", "4"):
            done = support.run(BEGIN + THREADS, CPU_NUM_DEVICES=count)
            self.assertEqual(support.check(self, done), "'of one thread' 1.0\n")

    def test_class_and_default_devices(self):
        parallel = dp.DataParallel(lambda: torch.nn.Linear(3, 2))
        self.assertEqual(parallel.devices, [DEVICE])

    def test_no_devices_means_pytorchs_cpu(self):
        module = torch.nn.Linear(3, 2)
        parallel = dp.DataParallel(module, device_ids=[])
        self.assertIs(parallel.models[0], module)
        loop = lambda model, loader, device, context: (str(device), [(at, data.device.type) for at, (data, _) in loader])
        self.assertEqual(parallel(loop, self.loader), [("cpu", [(at, "cpu") for at in range(4)])])

    def test_exception_reaches_the_caller(self):
        parallel = dp.DataParallel(torch.nn.Linear(3, 2))

        def loop(model, loader, device, context):
            for _ in loader:
                raise KeyError("in the loop")

        with self.assertRaisesRegex(KeyError, "in the loop"):
            parallel(loop, self.loader)

    def test_names(self):
        self.assertIs(dp.ParallelLoader, pl.ParallelLoader)
        context = dp.Context(DEVICE)
        self.assertEqual((context.device, context.getattr_or("x", 5)), (DEVICE, 5))
        self.assertEqual((context.x, context.getattr_or("x", 6)), (5, 5))


if __name__ == "__main__":
    unittest.main()
