"""Answer GET /topics, /topics/TENANT/NAMESPACE/TOPIC and /findings as JSON: python web_endpoint.py STORE PORT"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import pulsar_admin as pa


def answer(store: pa.Store, path: str) -> object:
    if path == "/topics":
        return store.topics()
    if path.startswith("/topics/"):
        return store.topic(path.removeprefix("/topics/")).stats()
    if path == "/findings":
        return store.doctor()
    raise pa.NotFound(f"{path} is not served")


class Handler(BaseHTTPRequestHandler):
    store: pa.Store

    def do_GET(self) -> None:
        try:
            status, found = 200, pa.to_json(answer(self.store, unquote(self.path)))
        except pa.StoreError as error:
            status, found = 404 if isinstance(error, pa.NotFound) else 500, {error.code: error.message}
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())


if __name__ == "__main__":
    with pa.open_store(sys.argv[1]) as Handler.store:
        server = ThreadingHTTPServer(("localhost", int(sys.argv[2])), Handler)
        print(server.server_port, flush=True)
        server.serve_forever()
