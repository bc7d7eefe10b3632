"""Runs scripts in processes of their own that have torch already: importing it takes longer than what most tests do.

Started by support.run, with the names of modules to import beside torch where they are installed. It reads one JSON object a line (script, arguments, environment, folder, stdout, stderr, timeout),
forks, runs the script as a program of its own in the child, and answers with the child's return code. It makes no
device's context and imports no torch_xla, so a child begins as a new process would.
"""
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback

import torch  # noqa: F401


def _become(request):
    """The child's environment, folder and output; then the script, until the interpreter ends as it does elsewhere."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0:1] = [path for path in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    sys.exit(0)


def _wait(child, timeout):
    """The child's return code as subprocess gives it; None where it took too long, and was ended."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main():
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # The script that needs it says so.
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        print(json.dumps(_wait(child, request["timeout"])), flush=True)


if __name__ == "__main__":
    main()
