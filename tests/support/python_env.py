"""A virtual environment of the build tree, for tests in Python that need packages. Made once, shared by all such tests."""
import fcntl
import os
import subprocess
import sys


def enter(name, packages, script, arguments=()):
    """Runs `script` again inside <build>/venv-<name>, which is made first; 77 (SKIPPED) where the registry cannot be reached.

    Returns at once where this process is inside already.
    """
    home = os.path.join(os.environ["WEFT_BUILD"], f"venv-{name}")
    python, done = os.path.join(home, "bin", "python"), os.path.join(home, "complete")
    if os.path.realpath(sys.prefix) == os.path.realpath(home):
        return
    with open(home + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not os.path.exists(done):
            made = subprocess.run([sys.executable, "-m", "venv", home], capture_output=True, text=True)
            if made.returncode == 0:
                made = subprocess.run(
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *packages],
                    capture_output=True, text=True, timeout=600)
            if made.returncode:
                print(f"SKIPPED: {' '.join(packages)} could not be installed:\n{made.stderr.strip()[-1500:]}")
                sys.exit(77)
            with open(done, "w", encoding="utf-8"):
                pass
    sys.stdout.flush()
    os.execv(python, [python, script, *arguments])
