"""Variables and what has to come before the first computation, each in a process of its own."""
import os
import tempfile
import unittest

import support
from torch_xla.core import xla_env_vars as xenv

BEGIN = "import torch, torch_xla, torch_xla.runtime as xr, torch_xla.core.xla_model as xm\nd = xm.xla_device()\n"
WORK = "print((torch.ones(3, device=d) * 2 + 1).tolist())\n"
COMPILES = "import torch_xla.debug.metrics as met\nprint(met.counter_value('weft::programs_compiled') or 0)\n"


def snapshot(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = (file.read(), os.stat(path).st_mtime_ns)
    return found


class Context(unittest.TestCase):

    def test_is_made_at_first_use(self):
        program = ("import torch_xla, torch_xla.core.xla_model as xm, torch\nfrom torch_xla import _weft\n"
                   "xm.xla_device(), torch_xla.device(), torch_xla.runtime.world_size()\nprint(_weft.context_made())\n"
                   "torch.ones(1, device='xla')\nprint(_weft.context_made())\n")
        self.assertEqual(support.check(self, support.run(program)), "False\nTrue\n")

    def test_unreachable_xrt_address(self):
        """An address that nobody answers: nothing is asked of it, so nothing waits."""
        for name, value in (("XRT_TPU_CONFIG", "tpu_worker;0;192.0.2.1:8470"), ("XRT_DEVICE_MAP", "CPU:0;/job:localservice"),
                            ("XRT_WORKERS", "localservice:0;grpc://192.0.2.1:40934")):
            done = support.run(BEGIN + WORK, timeout=60, **{name: value})
            self.assertEqual(support.check(self, done), "[3.0, 3.0, 3.0]\n")

    def test_xrt_address_on_tpus(self):
        program = ("import torch_xla, os, torch_xla.core.xla_model as xm\nxm.xla_device()\nxm.xla_device()\n"
                   "print(os.environ.get('XRT_TPU_CONFIG'))\n")
        done = support.run(program, XRT_TPU_CONFIG="tpu_worker;0;192.0.2.1:8470", PJRT_DEVICE="TPU")
        self.assertEqual(support.check(self, done), "None\n")
        self.assertEqual(done.stderr.count("the address in it is not used"), 1)

    def test_variables_of_xrt_are_known_by_name(self):
        self.assertEqual((xenv.TPU_CONFIG, xenv.DEVICE_MAP, xenv.WORKERS, xenv.PJRT_DEVICE, xenv.TPU_VISIBLE_CHIPS),
                         ("XRT_TPU_CONFIG", "XRT_DEVICE_MAP", "XRT_WORKERS", "PJRT_DEVICE", "TPU_VISIBLE_CHIPS"))

    def test_pjrt_device(self):
        self.assertEqual(support.check(self, support.run(BEGIN + WORK, PJRT_DEVICE="CPU")), "[3.0, 3.0, 3.0]\n")
        done = support.run(BEGIN + WORK, PJRT_DEVICE="ABACUS")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("PJRT_DEVICE: 'ABACUS' is not one of CPU, TPU", done.stderr)

    def test_variables_without_effect_are_said_once(self):
        done = support.run(BEGIN + "xm.xla_device()\n", XLA_METRICS_PERCENTILES="0.5", XLA_METRICS_SAMPLES="10")
        support.check(self, done)
        for name in ("XLA_METRICS_PERCENTILES", "XLA_METRICS_SAMPLES"):
            self.assertEqual(done.stderr.count(f"{name} is set, and has no effect yet"), 1, done.stderr)

    def test_op_by_op(self):
        """Each operation is a program of its own: four of them compile, where together they are one."""
        work = BEGIN + "x = torch.rand(4, device=d)\ny = (x * 2 + 1).relu().tanh()\n"
        at_barrier, when_read = (work + end + COMPILES for end in ("torch_xla.sync(wait=True)\n", "y = y.cpu()\n"))
        for name, work in (("SYNC_TENSORS_OPBYOP", at_barrier), ("GET_TENSORS_OPBYOP", when_read)):
            together = int(support.check(self, support.run(work, WEFT_CACHE_MODE="off")))
            alone = int(support.check(self, support.run(work, WEFT_CACHE_MODE="off", **{name: "1"})))
            self.assertGreaterEqual(alone, together + 3)
            self.assertEqual(int(support.check(self, support.run(work, WEFT_CACHE_MODE="off", **{name: "0"}))), together)

    def test_graphs_are_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graphs")
            work = BEGIN + "x = torch.rand(4, device=d)\ny = x.tanh()\ntorch_xla.sync(wait=True)\n"
            support.check(self, support.run(work, XLA_SAVE_TENSORS_FILE=path))
            with open(path) as file:
                text = file.read()
            self.assertIn("[ScheduleSyncTensorsGraph]\nTensorsGraphInfo:\n", text)
            self.assertIn("= f32[4]{0} xla::tanh(", text)
            support.check(self, support.run(work, XLA_SAVE_TENSORS_FILE=path + ".dot", XLA_SAVE_TENSORS_FMT="dot"))
            with open(path + ".dot") as file:
                self.assertIn("digraph ", file.read())

    def test_graphs_name_python_s_frames(self):
        """XLA_IR_DEBUG and XLA_HLO_DEBUG keep the stack of each operation; HLO text has its innermost line as metadata."""
        work = BEGIN + ("def inner(x):\n    return x.tanh()\ndef outer(x):\n    return inner(x)\n"
                        "y = outer(torch.rand(4, device=d))\ntorch_xla.sync(wait=True)\n")
        at = work[:work.index("return x.tanh()")].count("\n") + 1
        with tempfile.TemporaryDirectory() as folder:
            for name, form, wanted in (
                    ("XLA_IR_DEBUG", "text", rf"TensorsGraphInfo:\n  inner \(.*:{at}\)\n  outer \(.*:{at + 2}\)\n  <module> \(.*:{at + 3}\)\n"),
                    ("XLA_HLO_DEBUG", "hlo", rf"tanh\(%v\d+\), metadata={{op_type=\"tanh\" op_name=\"tanh\" source_file=\".*\" source_line={at}}}\n")):
                path = os.path.join(folder, form)
                support.check(self, support.run(work, XLA_SAVE_TENSORS_FILE=path, XLA_SAVE_TENSORS_FMT=form, **{name: "1"}))
                with open(path) as file:
                    self.assertRegex(file.read(), wanted)
            path = os.path.join(folder, "none")
            support.check(self, support.run(work, XLA_SAVE_TENSORS_FILE=path))
            with open(path) as file:
                self.assertNotIn("inner", file.read())

    def test_bfloat16_modes(self):
        """The tensor still says f32 and holds fewer digits."""
        work = BEGIN + "t = torch.tensor([1.001], device=d)\nprint(t.dtype, (t * 1).cpu().item())\n"
        self.assertEqual(support.check(self, support.run(work)), "torch.float32 1.0010000467300415\n")
        for name in ("XLA_USE_BF16", "XLA_DOWNCAST_BF16"):
            self.assertEqual(support.check(self, support.run(work, **{name: "1"})), "torch.float32 1.0\n")

    def test_float16_mode_is_refused_by_name(self):
        """Lightning's precision 16-true sets the variable when its trainer is made, late or early."""
        text = "XLA_USE_F16 is set: there is no mode that holds float32 tensors as float16"
        done = support.run(BEGIN + WORK, XLA_USE_F16="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(text, done.stderr)
        self.assertEqual(support.check(self, support.run(BEGIN + WORK, XLA_USE_F16="0")), "[3.0, 3.0, 3.0]\n")
        late = BEGIN + WORK + "import os\nos.environ['XLA_USE_F16'] = '1'\nxm.xla_device()\n"
        self.assertIn(text, support.run(late).stderr)

    def test_seed_before_the_context(self):
        """Seeding makes no context, and the numbers are those that the seed gives later too."""
        work = (BEGIN + "from torch_xla import _weft\ntorch_xla.manual_seed(7)\nprint(_weft.context_made())\n"
                "first = torch.rand(4, device=d).tolist()\ntorch_xla.manual_seed(7)\n"
                "print(torch.rand(4, device=d).tolist() == first, torch.rand(4, device=d).tolist() == first)\n")
        self.assertEqual(support.check(self, support.run(work)), "False\nTrue False\n")


class Cache(unittest.TestCase):

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.path = os.path.join(self._folder.name, "cache")

    def _run(self, arguments, work=WORK):
        return support.check(self, support.run(BEGIN + f"xr.initialize_cache({self.path!r}{arguments})\n" + work + COMPILES))

    def test_programs_are_kept_and_found(self):
        self.assertEqual(self._run(""), "[3.0, 3.0, 3.0]\n1\n")
        self.assertTrue(snapshot(self.path))
        self.assertEqual(self._run(", readonly=False").splitlines()[0], "[3.0, 3.0, 3.0]")
        self.assertEqual(self._run("").splitlines()[1], "0")

    def test_readonly_leaves_the_folder_alone(self):
        self._run("")
        before = snapshot(self.path)
        self.assertEqual(self._run(", readonly=True").splitlines()[1], "0")
        self._run(", readonly=True", "print((torch.ones(5, device=d) - 7).tolist())\n")
        self.assertEqual(snapshot(self.path), before)

    def test_readonly_makes_no_folder(self):
        self._run(", readonly=True")
        self.assertFalse(os.path.exists(self.path))

    def test_after_counting_the_devices(self):
        count = "print(torch_xla.device_count(), torch.xla.device_count(), len(xm.get_xla_supported_devices()))\n"
        done = support.run(BEGIN + count
                           + f"xr.initialize_cache({self.path!r})\n" + WORK + COMPILES)
        self.assertEqual(support.check(self, done), "1 1 1\n[3.0, 3.0, 3.0]\n1\n")
        self.assertTrue(snapshot(self.path))

    def test_after_a_computation(self):
        done = support.run(BEGIN + WORK + f"xr.initialize_cache({self.path!r})\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("initialize_cache must be called before any computation is executed", done.stderr)
        self.assertFalse(os.path.exists(self.path))

    def test_empty_path(self):
        self.assertIn("the path is empty", support.run(BEGIN + "xr.initialize_cache('')\n").stderr)


if __name__ == "__main__":
    unittest.main()
