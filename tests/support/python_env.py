"""Virtual environments of the build tree, for tests in Python that need packages. Each is made once and shared."""
import fcntl
import os
import shutil
import subprocess
import sys


def python_with(name, packages, *pip_options):
    """(python of <build>/venv-<name>, ""), the environment made first; (None, reason) where that cannot be done. PyTorch is
    large: scripts/test keeps one for all, and says where it is."""
    if name == "torch" and os.environ.get("WEFT_TORCH_PYTHON"):
        asked = subprocess.run([os.environ["WEFT_TORCH_PYTHON"], "-c", "import sys, torch; print(sys.executable)"], capture_output=True, text=True)
        return (None, f"WEFT_TORCH_PYTHON: {asked.stderr.strip()[-1500:]}") if asked.returncode else (asked.stdout.strip(), "")
    home = os.path.join(os.environ["WEFT_BUILD"], f"venv-{name}")
    python, done = os.path.join(home, "bin", "python"), os.path.join(home, "complete")
    with open(home + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not os.path.exists(done):
            shutil.rmtree(home, ignore_errors=True)
            made = subprocess.run([sys.executable, "-m", "venv", home], capture_output=True, text=True)
            if made.returncode == 0:
                made = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1",
                                       "--timeout", "20", *pip_options, *packages], capture_output=True, text=True)
            if made.returncode:
                return None, f"{' '.join(packages)} could not be installed:\n{made.stderr.strip()[-1500:]}"
            with open(done, "w", encoding="utf-8"):
                pass
    return python, ""


def enter(name, packages, script, *pip_options, needed=False):
    """Runs `script` again inside <build>/venv-<name>; 77 (SKIPPED) where that cannot be made, or 1 with `needed`. Inside, returns at
    once."""
    python, reason = python_with(name, packages, *pip_options)
    if python is None:
        print(f"{'FAILED' if needed else 'SKIPPED'}: {reason}")
        sys.exit(1 if needed else 77)
    if os.path.realpath(sys.prefix) == os.path.realpath(os.path.dirname(os.path.dirname(python))):
        return
    sys.stdout.flush()
    os.execv(python, [python, script, *sys.argv[1:]])
