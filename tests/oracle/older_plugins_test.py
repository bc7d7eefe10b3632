"""The oracle on XLA:CPU of two older versions of PJRT: each thirtieth program of oracle_test.py; --full: all of them."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import xla_cpu  # noqa: E402

EVERY = 1 if sys.argv[1:] == ["--full"] else 30

if __name__ == "__main__":
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracle_test.py")
    codes = set()
    for version in sorted(set(xla_cpu.PLUGINS) - {xla_cpu.NEWEST}):
        codes.add(subprocess.run([sys.executable, script, "--plugin", version, "--every", str(EVERY)]).returncode)
    sys.exit(next(iter(codes)) if len(codes) == 1 else 1)  # SKIPPED only if both are
