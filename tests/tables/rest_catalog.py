"""A catalogue that speaks Iceberg's REST protocol, as little of it as a client asks: one of SQLite answers behind it.

Read from the specification's open-api/rest-catalog-open-api.yaml. It hands out nothing without its bearer token.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import CommitTableRequest

TOKEN = "a token"


class _Handler(BaseHTTPRequestHandler):
    catalog: Catalog
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/v1/config":
            self._say(200, {"defaults": {}, "overrides": {}})
        elif self._may():
            try:
                self._say_table(self.catalog.load_table(_names(path)))
            except NoSuchTableError:
                self._fail(404, "NoSuchTableException")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._may():
            return
        self.asked.append(self.path)
        try:
            if self.path == "/v1/namespaces":
                self.catalog.create_namespace(tuple(json.loads(body)["namespace"]))
                self._say(200, json.loads(body))
            elif self.path.endswith("/tables"):
                self._stage(CreateTableRequest.model_validate_json(body))
            else:
                asked = CommitTableRequest.model_validate_json(body)
                table: Any = SimpleNamespace(name=lambda: _names(self.path))
                self._say_table(self.catalog.commit_table(table, asked.requirements, asked.updates))
        except NamespaceAlreadyExistsError:
            self._fail(409, "AlreadyExistsException")
        except CommitFailedException:
            self._fail(409, "CommitFailedException")

    def _stage(self, asked: CreateTableRequest) -> None:
        assert asked.stage_create
        staged = self.catalog.create_table_transaction(
            ("pulsar", asked.name),
            asked.table_schema,
            asked.location,
            asked.partition_spec,
            properties=asked.properties,
        )
        self._say(200, {"metadata": json.loads(staged.table_metadata.model_dump_json()), "config": {}})

    def _say_table(self, table: Any) -> None:  # Any: a Table, or what a commit answers
        metadata = json.loads(table.metadata.model_dump_json())
        self._say(200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})

    def _may(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {TOKEN}":
            return True
        self._fail(401, "NotAuthorizedException")
        return False

    def _fail(self, code: int, kind: str) -> None:
        self._say(code, {"error": {"message": f"{kind} of the catalogue", "type": kind, "code": code}})

    def _say(self, code: int, found: dict[str, Any]) -> None:
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _names(path: str) -> tuple[str, ...]:
    parts = path.split("/")
    return parts[3], parts[5]


@contextmanager
def serving(catalog: Catalog) -> Iterator[tuple[str, list[str]]]:
    """Serve CATALOG; give its URI, and the list that the paths of changes are noted in."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"catalog": catalog, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
