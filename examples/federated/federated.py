# SPDX-License-Identifier: Apache-2.0
"""Federated averaging over HTTP: clients upload quantized updates of a model, and a server adds their mean.

    python examples/federated/federated.py                       # a server and four clients on this machine
    python examples/federated/federated.py --operator float32    # the same without compression

UpdateFilter is the part to copy: it turns the arrays of an update into bytes and back, as filters of federated learning frameworks do.
The rest is a toy: logistic regression on points that each client draws from a region of its own.
"""

import argparse
import http.server
import json
import multiprocessing
import threading
import urllib.request
import zlib

import globalq
import numpy as np


class UpdateFilter:
    """Encodes the arrays of an update by an operator, and shorter ones as they are.

    operator  "float32", or one that globalq.encode() accepts, such as "cgx:4" or globalq.operator(norm="local:2", wire="packed:3")
    most      the most values that the server accepts for all arrays together
    """

    def __init__(self, operator, shortest=64, most=2**26):
        self.operator, self.shortest, self.most = operator, shortest, most

    def encode(self, update):
        parts = []
        for name, x in update.items():
            plain = self.operator == "float32" or x.size < self.shortest
            parts.append((name, list(x.shape), plain, x.astype("<f4").tobytes() if plain else globalq.encode(x, self.operator)))
        head = json.dumps([(name, shape, plain, len(data)) for name, shape, plain, data in parts]).encode()
        body = b"".join([len(head).to_bytes(4, "little"), head, *(data for *_, data in parts)])
        return zlib.crc32(body).to_bytes(4, "little") + body  # names and short arrays have no checksum of their own

    def decode(self, data):
        """Returns the arrays. Raises for bytes of another operator, damaged ones, and more values than `most`."""
        if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
            raise ValueError("the checksum of the update differs; send it again")
        at = 8 + int.from_bytes(data[4:8], "little")
        head, update, left = json.loads(data[8:at]), {}, self.most
        for name, shape, plain, size in head:
            part, at = data[at:at + size], at + size
            x = np.frombuffer(part, "<f4") if plain else globalq.decode(part, operator=self.operator, most=left)
            left -= x.size
            update[name] = x.reshape(shape)
        return update


class Server(http.server.ThreadingHTTPServer):
    """Holds the model. GET returns it; POST takes an update and returns when the round has ended, so that clients go in step."""

    def __init__(self, model, filter, clients):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.filter, self.clients = model, filter, clients
        self.updates, self.uploaded, self.lock, self.round = [], 0, threading.Lock(), threading.Barrier(clients, self.apply, 60)

    def apply(self):
        for name, x in self.model.items():
            x += sum(update[name] for update in self.updates) / self.clients
        self.updates.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, UpdateFilter("float32").encode(self.server.model))

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            update = self.server.filter.decode(data)
            if {name: x.shape for name, x in update.items()} != {name: x.shape for name, x in self.server.model.items()}:
                raise ValueError("the arrays of the update have other names or shapes than those of the model")
        except (globalq.Error, ValueError, TypeError) as problem:
            return self.answer(400, str(problem).encode())
        with self.server.lock:
            self.server.updates.append(update)
            self.server.uploaded += len(data)
        self.server.round.wait()
        self.answer(200, b"")

    def answer(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def points(seed, center, count=500, inputs=2000, classes=5):
    """Points around a center, with the class that planted weights give them."""
    planted = np.random.default_rng(0).normal(size=(inputs, classes))
    x = np.random.default_rng(seed).normal(size=(count, inputs)) + center
    return x.astype("float32"), (x @ planted).argmax(1)


def loss_and_gradient(model, x, y):
    scores = x @ model["weights"] + model["bias"]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    return loss, {"weights": x.T @ p / len(y), "bias": p.mean(0)}


def client(url, number, operator, rounds, local=5, rate=0.02):
    x, y = points(number + 1, center=0.1 * number)
    to_bytes = UpdateFilter(operator)
    for _ in range(rounds):
        with urllib.request.urlopen(url) as answer:
            start = UpdateFilter("float32").decode(answer.read())
        model = {name: v.copy() for name, v in start.items()}
        for _ in range(local):
            _, gradient = loss_and_gradient(model, x, y)
            for name, v in model.items():
                v -= rate * gradient[name]
        urllib.request.urlopen(url, to_bytes.encode({name: model[name] - start[name] for name in model})).close()


def main():
    parser = argparse.ArgumentParser(description="Federated averaging with quantized updates")
    parser.add_argument("--operator", default="cgx:4")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    server = Server({"weights": np.zeros((2000, 5), "float32"), "bias": np.zeros(5, "float32")}, UpdateFilter(given.operator), given.clients)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    crew = [multiprocessing.get_context("spawn").Process(target=client, args=(url, k, given.operator, given.rounds)) for k in range(given.clients)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
    server.shutdown()
    loss = np.mean([loss_and_gradient(server.model, *points(k + 1, 0.1 * k))[0] for k in range(given.clients)])
    print(f"{given.operator}: loss {loss:.4f} after {given.rounds} rounds, {server.uploaded // given.clients // given.rounds} bytes a client and round")
    return max(process.exitcode for process in crew)


if __name__ == "__main__":
    raise SystemExit(main())
