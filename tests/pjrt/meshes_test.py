"""tests/c_api/meshes.c on XLA:CPU plugins with four devices: losses within 1e-5 of one device; the newest, or with --full each of three."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import xla_cpu  # noqa: E402


def main():
    if sys.argv[1:] == ["--full"]:
        codes = {subprocess.run([sys.executable, os.path.abspath(__file__), version]).returncode for version in xla_cpu.PLUGINS}
        sys.exit(max(codes))
    version = sys.argv[1] if len(sys.argv) > 1 else xla_cpu.NEWEST
    xla_cpu.enter(__file__, version)
    env = dict(os.environ, WEFT_PLUGIN_OPTIONS="cpu_device_count=4")
    print(f"PJRT {version}", flush=True)
    sys.exit(subprocess.run([str(BUILD / "bin" / "weft_c_meshes"), "pjrt", xla_cpu.plugin()], env=env, timeout=600).returncode)


if __name__ == "__main__":
    main()
