"""The CUDA plugin as the package registry has it (192 MB), on a machine without a GPU: it is found and loaded, and says what is wrong.
For scripts/test --full, because of its size."""
import glob
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import python_env  # noqa: E402

PACKAGES = ["jax-cuda12-pjrt==0.12.0.1", "numpy"]


@unittest.skipIf(glob.glob("/dev/nvidia[0-9]*"), "this machine has a GPU: scripts/accelerator-check tells more")
class NoGpu(unittest.TestCase):
    def refused(self, command, **more):
        done = subprocess.run([sys.executable, *command], env=dict(os.environ, VIRTUAL_ENV=sys.prefix, **more), capture_output=True, text=True, timeout=120)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, r"plugin '/.*/jax_plugins/xla_cuda12/xla_cuda_plugin\.so' \(PJRT 0\.\d+\) gives no devices: "
                                      r"PJRT_Client_Create: No visible GPU devices")

    def test_a_context_says_so(self):
        models = str(SOURCE / "tests" / "support" / "models.py")
        self.refused([models, "mlp"], WEFT_PLATFORM="cuda")
        self.refused([models, "mlp"], WEFT_PLATFORM="gpu")

    def test_the_check_says_so(self):
        plugin, = glob.glob(f"{sys.prefix}/lib/python3*/site-packages/jax_plugins/xla_cuda12/xla_cuda_plugin.so")
        self.refused([str(SOURCE / "scripts" / "accelerator-check"), "--build", str(BUILD), "--plugin", plugin])


if __name__ == "__main__":
    python_env.enter("cuda", PACKAGES, os.path.abspath(__file__), "--no-deps")
    unittest.main(argv=sys.argv[:1], verbosity=2)
