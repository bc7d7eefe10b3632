"""Runs scripts in processes of their own that have torch already: importing it takes longer than what most tests do.

Started by support.run, with the names of modules to import beside torch where they are installed. It reads one JSON object a line (script, arguments, environment, folder, stdout, stderr, timeout),
forks, runs the script as a program of its own in the child, and answers with the child's return code. It makes no
device's context and imports no torch_xla, so a child begins as a new process would. A child ends without taking apart
the modules that it found, which takes seconds; what the script made is freed, after its functions for the exit have run.
"""
import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback

import torch  # noqa: F401


def _begin(request):
    """The child's environment, folder and output."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0:1] = [path for path in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]


def _run(script):
    """(return code, what the script left in its module)."""
    try:
        return 0, runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0, {}
        print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1, {}


def _become(request):
    """Runs the script, and ends the process in the interpreter's order: threads, functions for the exit, what is left."""
    _begin(request)
    code, left = _run(request["script"])
    threading._shutdown()
    atexit._run_exitfuncs()
    left.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        stream.flush()
    os._exit(code & 0xFF)


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
    gc.freeze()  # A child's collections then look at what it made itself.
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        print(json.dumps(_wait(child, request["timeout"])), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
