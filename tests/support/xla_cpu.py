"""XLA:CPU as a PJRT plugin, of three versions of PJRT, from the package registry: each in a virtual environment of its own."""
import glob
import os
import sys
import sysconfig

import python_env

# {version: (package, library in site-packages)}
PLUGINS = {
    "0.115": ("lammps-jax-pjrt-cpu==0.11.2", "lammps_jax_pjrt_cpu/*.so"),
    "0.106": ("fastatomstruct-xla-cpu==2026.6.23", "fastatomstruct_xla_cpu/*.so"),
    "0.81": ("xla-cpu-pjrt==0.0.1", "xla_plugins/xla_cpu_pjrt/*.so"),
}
NEWEST = "0.115"


def enter(script, version=NEWEST):
    """Runs `script` again where plugin() is, and NumPy; see python_env.enter."""
    python_env.enter("oracle" if version == NEWEST else f"oracle-{version}", [PLUGINS[version][0], "numpy"], os.path.abspath(script), "--no-deps")


def plugin():
    """The library of the environment that `enter` went into."""
    home = sysconfig.get_paths()["purelib"]
    found = [path for _, library in PLUGINS.values() for path in glob.glob(os.path.join(home, library))]
    if len(found) != 1:
        sys.exit(f"{home} has {len(found)} of the plugins {PLUGINS}")
    return found[0]
