"""A server with threads: a network behind HTTP, one compiled program for each of a few batch sizes.

pip install libweft
python3 server.py --port 8080 &
curl -d '[[0.1, 0.2, 0.3, 0.4]]' http://127.0.0.1:8080/
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import libweft as wf
from libweft import nn

SIZES = (1, 4, 16)


class Model:
    """Functions that were compiled ahead; requests of other sizes are padded up to the next."""

    def __init__(self):
        wf.seed(0)
        network = nn.Sequential(nn.Linear(4, 32), nn.relu, nn.Linear(32, 3), nn.softmax)
        self.weights = list(network.state_dict().values())
        wf.sync(wait=True)
        self.functions = {}
        for size in SIZES:
            function = wf.function(lambda net, x: net(x)).trace(network, wf.zeros((size, 4)))
            self.functions[size] = function.compile()

    def answer(self, rows):
        if not rows or len(rows) > SIZES[-1] or any(len(row) != 4 for row in rows):
            raise ValueError("between 1 and %d rows of 4 numbers are wanted" % SIZES[-1])
        size = next(s for s in SIZES if s >= len(rows))
        x = wf.tensor(rows + [[0.0] * 4] * (size - len(rows)), "f32")
        return self.functions[size].run(*self.weights, x).tolist()[: len(rows)]


def handler(model):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            try:
                rows = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                status, body = 200, model.answer(rows)
            except (ValueError, TypeError) as error:  # Errors of Weft are of these kinds, too.
                status, body = 400, {"error": str(error)}
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    return Handler


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--selftest", action="store_true", help="serve twenty requests of four threads, and end")
    o = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0 if o.selftest else o.port), handler(Model()))
    if not o.selftest:
        print("http://127.0.0.1:%d/" % server.server_port, flush=True)
        return server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return selftest(server)


def selftest(server):
    from urllib.error import HTTPError
    from urllib.request import urlopen

    url, sums, refused = "http://127.0.0.1:%d/" % server.server_port, [], []

    def client(n):
        for i in range(5):
            rows = [[float(n), float(i), 1.0, -1.0]] * (1 + (n + i) % 7)
            sums.extend(round(sum(row), 4) for row in json.load(urlopen(url, json.dumps(rows).encode())))
        try:
            urlopen(url, b"[[1]]")
        except HTTPError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    server.shutdown()
    print("%d rows, probabilities add up to %s, refused %s" % (len(sums), sorted(set(sums)), refused))


if __name__ == "__main__":
    main()
