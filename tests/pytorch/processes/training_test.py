"""Training by several processes comes to the weights of one process with the same global batch; nothing is compiled late."""
import os
import subprocess
import sys
import tempfile
import unittest

import begin
import support
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "seeds"))
import blocks  # noqa: E402
import seeds_test  # noqa: E402

# A network with everything that processes have to agree on: shuffled halves of a data set, momentum, dropout by one seed.
TRAIN = """
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
folder, drop = args
GLOBAL, EXAMPLES = 16, 64
count = xm.xrt_world_size()
generator = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.arange(EXAMPLES), torch.rand(EXAMPLES, 1, 8, 8, generator=generator),
                                      torch.randint(0, 10, (EXAMPLES,), generator=generator))
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(drop),
                            torch.nn.Linear(4 * 36, 10)).to(xm.xla_device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=xm.xrt_world_size(), rank=xm.get_ordinal(),
                                                          shuffle=True)
loader = pl.MpDeviceLoader(torch.utils.data.DataLoader(data, batch_size=GLOBAL // count, sampler=sampler), xm.xla_device())
steps, seen, losses = 0, [], []
for epoch in range(25):
    sampler.set_epoch(epoch)
    seen.append([])
    for numbers, images, labels in loader:
        seen[-1] += numbers.tolist()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        assert xm.optimizer_step(optimizer) is None
        losses.append(loss.detach())
        steps += 1
        if steps == 20:
            met.clear_all()
xm.mark_step()
assert steps == 100, steps
assert met.counter_value("UncachedCompile") is None, met.metrics_report()
assert met.executed_fallback_ops() in ([], ["aten::_local_scalar_dense"]), met.executed_fallback_ops()
launches = met.metric_data("ExecuteTime")[0]
assert met.counter_value("weft::steps_replayed") >= 0.95 * launches, (met.counter_value("weft::steps_replayed"), launches)
# Every item once an epoch, by one process.
for epoch in xm.mesh_reduce("seen", seen, lambda all: [sorted(sum(parts, [])) for parts in zip(*all)]):
    assert epoch == list(range(EXAMPLES)), epoch
xm.save([parameter.detach() for parameter in model.parameters()], f"{folder}/{index}-of-{count}.pt", master_only=False)
mean = xm.mesh_reduce("loss", torch.stack(losses), lambda all: torch.stack(all).mean(0))
xm.save(mean, f"{folder}/loss-{count}.pt")
"""
SAVES_AT_EACH_STEP = """
import torch_xla.core.xla_model as xm
_optimizer_step = xm.optimizer_step
def _saving(optimizer):
    result = _optimizer_step(optimizer)
    torch.save({name: tensor.cpu() for name, tensor in MNIST.made[0].state_dict().items()}, f'of-{xm.get_ordinal()}.pt')
    return result
xm.optimizer_step = _saving
"""


# The line that examples/c/several_processes.c and examples/python/several_processes.py print.
LINE = """
noise, xs, ys = 1, [], []
for at in range(200):
    noise = (noise * 1664525 + 1013904223) % 2**32
    if at % xm.xrt_world_size() == index:
        xs.append(-1 + 2 * at / 199)
        ys.append(1.7 * xs[-1] - 0.4 + 0.1 * ((noise >> 8) / 8388608 - 1))
x, y = on(*xs), on(*ys)
w = [torch.nn.Parameter(torch.zeros((), device=x.device)) for _ in range(2)]
optimizer = torch.optim.SGD(w, lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    ((x * w[0] + w[1] - y) ** 2).mean().backward()
    xm.optimizer_step(optimizer, barrier=True)
xm.master_print(f"y = {w[0].item():.5f} x {w[1].item():+.5f}, found by {xm.xrt_world_size()}")
"""


class Training(unittest.TestCase):

    def _train(self, folder, count, drop=0.0):
        done = support.run(begin.program(TRAIN, f"xmp.spawn(f, args=({folder!r}, {drop}), nprocs={count}, start_method='fork')"))
        support.check(self, done)
        return [torch.load(f"{folder}/{rank}-of-{count}.pt") for rank in range(count)], torch.load(f"{folder}/loss-{count}.pt")

    def test_two_and_four_come_to_the_weights_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            (expected,), losses = self._train(folder, 1)
            self.assertLess(losses[-4:].mean(), 0.85 * losses[:4].mean())
            for count in (2, 4):
                weights, got = self._train(folder, count)
                for own in weights:
                    for one, want in zip(own, expected, strict=True):
                        torch.testing.assert_close(one, want, rtol=0, atol=1e-6)
                for own in weights[1:]:
                    self.assertTrue(all(torch.equal(one, other) for one, other in zip(own, weights[0])))
                torch.testing.assert_close(got, losses, rtol=1e-5, atol=1e-5)

    def test_the_same_number_of_processes_gives_the_same_bits(self):
        """Also with dropout, whose masks come of each process's seed."""
        with tempfile.TemporaryDirectory() as folder:
            (first, _), losses = self._train(folder, 2, 0.3)
            (again, _), same = self._train(folder, 2, 0.3)
            self.assertTrue(all(torch.equal(one, other) for one, other in zip(first, again)))
            self.assertTrue(torch.equal(losses, same))

    def test_random_numbers(self):
        """Every process draws what one process alone draws with its seed."""
        body = """
torch.manual_seed(5)
same = torch.rand(4, device=xm.xla_device()).tolist()
xm.set_rng_state(7 + index)
own = torch.rand(4, device=xm.xla_device()).tolist()
say(index, same, own, xm.get_rng_state() > 0)
"""
        two, one = (begin.ranks(support.check(self, support.run(begin.program(body, f"xmp.spawn(f, nprocs={count}, "
                                                                                f"start_method='fork')")))) for count in (2, 1))
        self.assertEqual(two[0], one[0])
        self.assertEqual(two[1][0].split("]")[0], one[0][0].split("]")[0])
        self.assertNotEqual(two[1], two[0])

    def test_the_program_that_other_languages_have(self):
        """By two processes that something else has started, the line that the example finds alone, by ctypes."""
        example = os.path.join(support.ROOT, "examples", "python", "several_processes.py")
        library = os.environ.get("WEFT_LIBRARY") or os.path.join(support.PACKAGE, "torch_xla", "_weft", "libweft.so.1")
        alone = subprocess.run([sys.executable, example, "--library", library], check=True, capture_output=True, text=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(begin.program(LINE, "xmp.spawn(f)"))
            processes = [subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, env={
                **os.environ, "PYTHONPATH": support.PACKAGE, "WEFT_RANK": str(rank), "WEFT_WORLD_SIZE": "2", "WEFT_JOB_TOKEN": "x",
                "WEFT_JOB": f"line-{os.getpid()}"}) for rank in range(2)]
            said = [process.communicate(timeout=120)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0])
        self.assertEqual(said, [alone.replace("by 1", "by 2"), ""])

    @unittest.skipUnless(seeds_test.HAVE_SEEDS, f"the documents are not at {blocks.SEEDS}")
    def test_the_documents_own_program(self):
        """As it stands, with the default start method: two processes, each of which has the same batches."""
        block = {(block.seed, block.line): block for block in blocks.python_blocks()}["002", 114]
        with open(os.path.join(os.path.dirname(blocks.__file__), "stubs.py"), encoding="utf-8") as file:
            stubs = file.read()
        check = """
if __name__ == '__main__':
    _printed.seek(0)
    for rank in range(2):
        weights = torch.load(f'of-{rank}.pt')
        model = MNIST()
        model.load_state_dict(weights)
        assert_trained(model.to('xla'), 1)
    _real_stdout.write('checked\\n')
"""
        done = support.run("\n".join([stubs, SAVES_AT_EACH_STEP, block.text, check]), fresh=True, CPU_NUM_DEVICES="2",
                           XRT_TPU_CONFIG=seeds_test.NOBODY)
        self.assertEqual(support.check(self, done), "checked\n")


if __name__ == "__main__":
    unittest.main()
