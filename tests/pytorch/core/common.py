"""What the tests of the core share: the package of this checkout, the device, and comparison with torch's CPU."""

import os
import pathlib
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[3] / "bindings" / "pytorch"
sys.path.insert(0, str(ROOT))


def _import_core():
    """The core alone: a package without the facade's __init__, so that these tests judge the core only."""
    if "torch_xla" not in sys.modules:
        package = types.ModuleType("torch_xla")
        package.__path__ = [str(ROOT / "torch_xla")]
        sys.modules["torch_xla"] = package
    import torch_xla._weft as core

    return core


core = _import_core()

import torch  # noqa: E402

DEVICE = torch.device("xla")


def same(test, expected, actual, message="", bits=True):
    """Equal in dtype, shape and values: bit for bit, or within a few units in the last place."""
    test.assertEqual(actual.device.type, "xla", message)
    test.assertEqual((expected.dtype, expected.shape), (actual.dtype, actual.shape), message)
    host = actual.cpu()
    if bits:
        test.assertTrue(
            torch.equal(expected, host) or torch.allclose(expected, host, rtol=0, atol=0, equal_nan=True),
            f"{message}\n{expected}\n{host}",
        )
    else:
        torch.testing.assert_close(host, expected, rtol=2e-5, atol=2e-6, equal_nan=True, msg=lambda text: f"{message}: {text}")


def host_operations():
    """What the host computed since the counters were cleared."""
    return sorted(name for name in core.counters() if name.startswith("aten::"))


def child(source, **environment):
    """Runs a program of its own, which finds the core."""
    text = (
        "import sys, types\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "package = types.ModuleType('torch_xla'); package.__path__ = [sys.path[0] + '/torch_xla']\n"
        "sys.modules['torch_xla'] = package\nimport torch\n" + source
    )
    return subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
