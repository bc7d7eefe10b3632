"""Type modes on XLA:CPU's plugin: what tests/c_api/type_modes_numpy_test.py says of them."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
from xla_cpu import enter, plugin  # noqa: E402

enter(__file__)
done = subprocess.run([sys.executable, str(SOURCE / "tests" / "c_api" / "type_modes_numpy_test.py")],
                      env={**os.environ, "WEFT_PLATFORM": "pjrt", "WEFT_PLUGIN": plugin()})
sys.exit(done.returncode)
