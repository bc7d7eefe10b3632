"""tests/c_api/meshes.c, mesh_values.c, mesh_copies.c, mesh_checkpoints.c and open_results.c on XLA:CPU plugins with four devices: ten losses both ways at once on the newest, within 1e-5 of one
device; with --full twenty of each way on each of three, and six of each network of mesh_models.c."""
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
        codes = {subprocess.run([sys.executable, os.path.abspath(__file__), version, "all"]).returncode for version in xla_cpu.PLUGINS}
        sys.exit(max(codes))
    version = sys.argv[1] if len(sys.argv) > 1 else xla_cpu.NEWEST
    xla_cpu.enter(__file__, version)
    env = dict(os.environ, WEFT_PLUGIN_OPTIONS="cpu_device_count=4", TF_CPP_MIN_LOG_LEVEL="3")
    few = [] if sys.argv[2:] == ["all"] else ["few"]
    print(f"PJRT {version}", flush=True)
    lie = "whole" if version == "0.81" else "cut"  # whether the plugin has the extension Shardings
    programs = [["weft_c_meshes", *few], ["weft_c_mesh_values"], ["weft_c_mesh_copies"], ["weft_c_open_results", lie], ["weft_c_mesh_checkpoints", "64" if few else "256"]] + ([["weft_c_mesh_models", "few"]] if not few else [])
    codes = []
    for program, *more in programs:
        codes.append(subprocess.run([str(BUILD / "bin" / program), "pjrt", xla_cpu.plugin(), *more], env=env, timeout=600).returncode)
    sys.exit(max(codes, key=abs))


if __name__ == "__main__":
    main()
