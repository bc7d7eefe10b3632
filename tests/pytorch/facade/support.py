"""What the facade's tests share: where the package lies, programs run in a process of their own, what a call printed."""
import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
PACKAGE = os.path.join(ROOT, "bindings", "pytorch")

sys.path.insert(0, PACKAGE)


# What programs get imported already. The first optimizer of a process imports torch._dynamo, hundreds of modules.
preloaded = ["torch._dynamo"]
_server = None


def _ask(request):
    """Has the fork server run a script; starts it for the first one."""
    global _server
    if _server is None:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fork_server.py")
        _server = subprocess.Popen([sys.executable, script, *preloaded], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(_server.communicate)
    _server.stdin.write(json.dumps(request) + "\n")
    _server.stdin.flush()
    return json.loads(_server.stdout.readline())


def _start(request):
    """The return code of a script that a new interpreter runs; None where it took too long, and was ended."""
    with open(request["stdout"], "wb") as stdout, open(request["stderr"], "wb") as stderr:
        try:
            return subprocess.run([sys.executable, request["script"], *request["arguments"]], env=request["environment"],
                                  cwd=request["folder"], timeout=request["timeout"], stdout=stdout, stderr=stderr).returncode
        except subprocess.TimeoutExpired:
            return None


def run(program, *arguments, timeout=300, folder=None, path=(), fresh=False, **environment):
    """Runs Python source in a process of its own; gives returncode, stdout and stderr as subprocess.run does.

    The process is a fork of one that has torch, or with `fresh` a new interpreter. Variables of this package and of the
    library are not taken over, apart from WEFT_LIBRARY.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "XRT_", "PJRT_", "WEFT_"))}
    if "WEFT_LIBRARY" in os.environ:
        variables["WEFT_LIBRARY"] = os.environ["WEFT_LIBRARY"]
    variables["PYTHONPATH"] = os.pathsep.join([PACKAGE, *path])
    variables.update(environment)
    with tempfile.TemporaryDirectory() as own:
        script = os.path.join(own, "program.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(program)
        outputs = {name: os.path.join(own, name) for name in ("stdout", "stderr")}
        request = {"script": script, "arguments": arguments, "environment": variables, "folder": folder or own,
                   "timeout": timeout, **outputs}
        code = (_start if fresh else _ask)(request)
        texts = {}
        for name, file_name in outputs.items():
            with open(file_name, encoding="utf-8") as file:
                texts[name] = file.read()
    if code is None:
        raise AssertionError(f"the program did not end within {timeout} seconds:\n{texts['stdout']}{texts['stderr']}")
    return subprocess.CompletedProcess(script, code, texts["stdout"], texts["stderr"])


def check(case, done):
    """Fails the test with what the process wrote, where it did not end well."""
    case.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


def printed(function, *arguments, **named):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function(*arguments, **named)
    return text.getvalue()
