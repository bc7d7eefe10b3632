"""torch_xla.debug.profiler: a server that tells what the process did so far, and named parts of a program.

The time of a part is a metric of its name in the metrics report, and a range in PyTorch's own profiler.
"""
import http.server
import threading
import time

import torch

from .. import _later, _step
from ..core import xla_model as xm
from . import metrics as _metrics
from . import spans as _spans


class _Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        if self.path not in ("/", "/metrics"):
            self.send_error(404, "there is / alone, the metrics report")
            return
        body = _metrics.metrics_report().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """A request is not news for the terminal of a training run."""


class ProfilerServer:
    """Answers http://localhost:port/ with the metrics report, until `stop` or the end of the process."""

    def __init__(self, port):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="torch_xla profiler server", daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


def start_server(port, only_on_master=True):
    """Starts the server on this machine's `port`, in the first process alone where so asked. OSError where it is taken.

    It speaks HTTP and not TensorBoard's protocol: what it has is the metrics report as text.
    """
    if only_on_master and not xm.is_master_ordinal():
        return None
    return ProfilerServer(port)


class Trace:
    """A named part of a program: `with Trace("forward"):`."""

    def __init__(self, name, **kwargs):
        self._name = name
        self._range = torch.profiler.record_function(name)
        self._begin = None

    def __enter__(self):
        self._range.__enter__()
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(self, type, value, traceback):
        _spans.add(self._name, time.perf_counter_ns() - self._begin)
        self._range.__exit__(type, value, traceback)


class StepTrace(Trace):
    """A named step: it ends with the barrier, unless an exception ends it."""

    def __init__(self, name, step_num=None, **kwargs):
        super().__init__(name if step_num is None else f"{name}#{step_num}")
        self._name = name

    def __exit__(self, type, value, traceback):
        try:
            if type is None:
                _step.sync()
        finally:
            super().__exit__(type, value, traceback)


def __getattr__(name):
    raise _later.missing(__name__, name)
