"""What the package refuses to be imported with: each an ImportError that says what is wrong, never the end of the process."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from common import ROOT, child
import torch

MODULE = ROOT / "torch_xla" / "_weft" / "_weft_torch.abi3.so"
C10 = pathlib.Path(torch.__file__).parent / "lib" / "libc10.so"
LIBRARY = """
#include "weft.h"
static const char* release(void) { return "0.9.0"; }
static const weft_api_v1 api = {.struct_size = offsetof(weft_api_v1, device_trim) - 8, .release_version = release};
WEFT_API const weft_api_v1* weft_get_api(uint32_t major) { return major == MAJOR ? &api : NULL; }
"""
# One process tries everything, as importing torch takes long. `attempt` imports the package anew.
BEGIN = """
import importlib.util, json, os
found = {}

def attempt(name, action=None):
    for module in [module for module in sys.modules if module.startswith("torch_xla._weft")]:
        del sys.modules[module]
    try:
        action() if action else importlib.import_module("torch_xla._weft")
        found[name] = "nothing"
    except ImportError as error:
        found[name] = str(error)

def load(path):
    spec = importlib.util.spec_from_file_location("_weft_torch", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.load("", path, 0, torch.Tensor.__dlpack_c_exchange_api__, print, [0] * 64, [[0] * 64] * 64)

version, exchange = torch.__version__, torch.Tensor.__dlpack_c_exchange_api__
torch.__version__ = "2.9.1+cpu"
attempt("old torch")
torch.__version__ = version
del torch.Tensor.__dlpack_c_exchange_api__
attempt("no exchange")
torch.Tensor.__dlpack_c_exchange_api__ = exchange
attempt("no function", lambda: load(C10))
attempt("no libtorch", lambda: load("/nowhere/libtorch_cpu.so"))
for path in LIBRARIES:
    os.environ["WEFT_LIBRARY"] = path
    attempt(path)
del os.environ["WEFT_LIBRARY"]
package.__path__ = [FOREIGN]
attempt("foreign")
package.__path__ = [sys.path[0] + "/torch_xla"]
torch.utils.rename_privateuse1_backend("other")
attempt("taken")
print(json.dumps(found))
"""
ABI = "and ABI 1.1 or newer of major version 1 is wanted"


class Refusals(unittest.TestCase):
    def libraries(self, folder):
        """Texts of the libraries that are no Weft, or another one."""
        texts = {
            "/nowhere/libweft.so.1": "was looked for at /nowhere/libweft.so.1 (variable WEFT_LIBRARY) and is not there",
            __file__: f"the library of Weft was looked for at {__file__}: ",
            str(C10): f"{C10} is Weft of another ABI, {ABI}",
        }
        if shutil.which("cc") is not None:
            source = os.path.join(folder, "other.c")
            with open(source, "w") as file:
                file.write(LIBRARY)
            for major, text in ((1, "Weft 0.9.0"), (2, "Weft of another ABI")):
                library = os.path.join(folder, f"libweft.so.{major}")
                headers = ROOT.parents[1] / "include" / "c_api"
                command = ["cc", "-shared", "-fPIC", f"-DMAJOR={major}", "-I", str(headers), source, "-o", library]
                subprocess.run(command, check=True)
                texts[library] = f"{library} is {text}, {ABI}"
        return texts

    def test_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            foreign = pathlib.Path(folder) / "torch_xla"
            shutil.copytree(ROOT / "torch_xla", foreign, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
            (foreign / "_XLAC.cpython-311-x86_64-linux-gnu.so").touch()
            texts = {
                "old torch": "needs torch 2.10 or newer; this is torch 2.9.1+cpu",
                "no exchange": f"needs torch 2.10 or newer; this is torch {torch.__version__}",
                "no function": f"{C10} has no function aoti_torch_library_init_impl: torch 2.10 or newer is wanted",
                "no libtorch": "/nowhere/libtorch_cpu.so is not loaded: import torch first",
                "foreign": "PyTorch/XLA itself is installed in the same place",
                "taken": "taken by 'other': torch has room for one, and torch_xla needs it",
                **(libraries := self.libraries(folder)),
            }
            given = f"MODULE, C10, FOREIGN, LIBRARIES = {str(MODULE)!r}, {str(C10)!r}, {str(foreign)!r}, {list(libraries)!r}\n"
            run = child(given + BEGIN)
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        for name, text in texts.items():
            with self.subTest(name):
                self.assertIn(text, found[name])

    def test_a_device_module_that_is_there(self):
        run = child(
            "torch.utils.rename_privateuse1_backend('xla')\n"
            "torch._register_device_module('xla', types.ModuleType('torch.xla'))\n"
            "try: import torch_xla._weft\nexcept ImportError as error: print('said', error)\n"
        )
        self.assertIn("taken by 'xla'", run.stdout, run.stderr)


if __name__ == "__main__":
    unittest.main()
