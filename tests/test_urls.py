"""Objects of a server that does not serve."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pulsar_admin.store import urls
from pulsar_admin.store.errors import MissingComponent
from tests.conftest import Cli


@pytest.fixture
def failing() -> Iterator[tuple[str, list[str]]]:
    """An S3 server that answers every request with status 500, by its address, and the requests that it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization'].partition('/')[0]}")
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_a_server_that_fails_is_asked_a_few_times(
    failing: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow alone asks 31 times. The keys in the URL still count."""
    address, asked = failing
    monkeypatch.setattr(urls, "_TRIES", 2)
    with pytest.raises(MissingComponent, match="HTTP status 500"):
        urls.file_info(f"s3://key:secret@bucket/0.log?region=us-east-1&scheme=http&endpoint_override={address}")
    assert asked == ["/bucket/0.log AWS4-HMAC-SHA256 Credential=key"] * 2


def test_memory_is_filled_as_far_as_an_object_goes(tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(b"0123456789")
    for opened in (urls.open_bytes(place := f"file://{tmp_path}/object"), urls.open_bytes(tmp_path / "object")):
        data = bytearray(b"......")
        assert (urls.read_into(opened, memoryview(data)[:4], 3), bytes(data)) == (4, b"3456.."), place
        assert (urls.read_into(opened, memoryview(data), 8), bytes(data)) == (2, b"8956.."), place
        urls.close_bytes(opened)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("abfs://box@host.dfs.core.windows.net/0.log?sig=a&tls=no", "URI: 'tls'"),
        ("abfss://box@host/0.log?enable_tls=no", "not a valid boolean value: 'no'"),
        ("s3://key:secret@bucket/0.log?zone=x", "URI: 'zone'"),
        ("gs://bucket/0.log?retry_limit_seconds=x", "got 'x'"),
        ("s3:///0.log", "Missing bucket name"),
    ],
)
@pytest.mark.parametrize("words", [("logs", "verify"), ("store", "add", "offload")])
def test_what_a_url_cannot_say_is_a_wrong_request(
    words: tuple[str, ...], url: str, said: str, cli: Cli, demo_store: Path
) -> None:
    """No log is damaged: what is wrong, in which URL, and what it may have."""
    answer = cli("--store", demo_store, *words, url, "-o", "json").fails(2, "invalid-value", said)
    assert "key:secret" not in answer.stderr
    assert "endpoint_override" in answer.stderr or "credential_kind (anonymous, environment)" in answer.stderr
