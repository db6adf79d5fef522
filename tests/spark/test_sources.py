"""Files at URLs: the rows of local files, read by ranges; what is not there, and what became shorter."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

import pytest
from msgspec import structs
from pyarrow import fs

import pulsar_admin as pa
from pulsar_admin.store import urls
from pulsar_admin.store.engine.local import LocalEngine
from pulsar_admin.store.engine.operation import Engine, Operation
from pulsar_admin.store.engine.slices import Cut, FileRange, plan_slices
from pulsar_admin.store.errors import MissingComponent, SourceNotFound, StoreError, Unsupported
from pulsar_admin.store.scan import sources
from pulsar_admin.store.scan.operations import ReadEntries, ReadMessages
from pulsar_admin.store.scan.sources import source_files
from pulsar_admin.store.tables.folder import Folder
from pulsar_admin.store.transfer.fetching import fetch_bookie
from pulsar_admin.store.urls import read_bytes, shown_path
from tests.conftest import Cli
from tests.spark.servers import s3_bucket, server_of
from tests.worlds import world

FOLDER = world("small") / "crashed" / "bookkeeper" / "current"
COLUMNS = ("ledger_id", "entry_id", "offset", "publish_time", "digest_ok")


def _rows(operation: Operation, pieces: list[FileRange]) -> list[dict[str, object]]:
    engine: Engine = LocalEngine(1)
    found = dict(engine.run(operation, pieces, lambda _: None))
    assert not engine.failed
    return [row for piece in pieces for row in found[piece].to_pylist()]


@pytest.mark.parametrize("ahead_bytes", [100, sources.READ_AHEAD_BYTES])
@pytest.mark.parametrize("operation", [ReadEntries(columns=COLUMNS), ReadMessages(columns=COLUMNS[:2], payload=True)])
def test_a_url_has_the_rows_of_the_file(
    operation: Operation, ahead_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the last record of a slice reaches far over what is fetched at first."""
    monkeypatch.setattr(sources, "READ_AHEAD_BYTES", ahead_bytes)
    local = _rows(operation, plan_slices(source_files(str(FOLDER)), Cut()))
    files = source_files(f"{FOLDER.as_uri()}/*.log")
    assert len(local) > 1000
    for cut in (Cut(), Cut(300_000)):
        assert _rows(operation, plan_slices(files, cut)) == local


def test_urls_name_a_file_a_folder_or_a_glob() -> None:
    names = sorted(str(path.stat().st_size) for path in FOLDER.glob("*.log") if path.stat().st_size)
    for pattern in (FOLDER.as_uri(), FOLDER.as_uri() + "/*.log"):
        assert sorted(str(size) for _, _, size in source_files(pattern)) == names
    one = f"{FOLDER.as_uri()}/0.log"
    assert [path for path, _, _ in source_files(one)] == [one]


@pytest.mark.parametrize("pattern", ["file:///nowhere/*.log", "file:///nowhere", "/nowhere/*.log"])
def test_nothing_there(pattern: str) -> None:
    with pytest.raises(SourceNotFound, match="no entry log at"):
        source_files(pattern)


def test_hdfs_without_hadoop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(MissingComponent, match="needs Hadoop's native client: Unable to load lib") as raised:
        source_files("hdfs://127.0.0.1:1/ledgers/*.log")
    assert "ARROW_LIBHDFS_DIR" in raised.value.hint
    assert len(raised.value.message.splitlines()) == 1


class _Hadoop:
    """Hadoop's file system as Arrow has it: it closes the files that it opened once it is collected."""

    down: ClassVar[bool] = False

    @classmethod
    def from_uri(cls, url: str) -> tuple[_Hadoop, str]:
        return cls(), urlsplit(url).path

    def get_file_info(self, asked: str | fs.FileSelector) -> object:
        if not self.down:
            return fs.LocalFileSystem().get_file_info(asked)
        if isinstance(asked, str):
            return fs.FileInfo(asked, type=fs.FileType.NotFound)
        raise OSError(255, "HDFS list directory failed")

    def open_input_file(self, path: str) -> _OfHadoop:
        return _OfHadoop(weakref.ref(self), path)


class _OfHadoop(NamedTuple):
    system: weakref.ref[_Hadoop]
    path: str

    def read_at(self, count: int, start: int) -> bytes:
        if self.system() is None:
            raise OSError(255, "HDFS read failed")
        with fs.LocalFileSystem().open_input_file(self.path) as file:
            return bytes(file.read_at(count, start))


def test_hdfs_stays_open_while_its_files_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fs, "FileSystem", _Hadoop)
    (tmp_path / "a%20b").write_bytes(b"0123456789")
    url = f"hdfs://stays:8020{tmp_path}/a%20b"
    assert [urls.read_at(url, 3, start) for start in (0, 4)] == [b"012", b"456"]
    assert Folder.of(f"hdfs://stays:8020{tmp_path}").open_input("a%20b").read_at(2, 8) == b"89"


def test_hdfs_that_does_not_answer_is_not_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fs, "FileSystem", _Hadoop)
    monkeypatch.setattr(_Hadoop, "down", True)
    url = f"hdfs://down:8020{tmp_path}"
    for ask in (
        lambda: source_files(f"{url}/*.log"),
        lambda: urls.file_info(f"{url}/0.log"),
        lambda: Folder.of(url).read("0.log"),
    ):
        with pytest.raises(MissingComponent, match=r"cannot be reached: .*HDFS list directory failed"):
            ask()
    monkeypatch.setattr(_Hadoop, "down", False)
    with pytest.raises(SourceNotFound):
        source_files(f"{url}/*.log")


def test_hdfs_without_a_class_path() -> None:
    """Arrow says no more of it, and the same of a host that is not known."""
    with pytest.raises(MissingComponent) as raised, urls.translated("hdfs://namenode/0.log"):
        raise OSError("HDFS connection failed")
    assert "check the address, " in raised.value.hint
    assert "CLASSPATH=$(hadoop classpath --glob)" in raised.value.hint


@pytest.mark.parametrize(
    "said",
    [
        "When getting information for key '0.log' in bucket 'logs': AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, "
        "Could not connect to server; Details: Failed to connect to 127.0.0.1:9 after 0 ms: Could not connect to server",
        "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of PerformWork() - CURL error "
        "[7]=Could not connect to server error_info={reason=, domain=})",
        "Check for Hierarchical Namespace support on 'http://127.0.0.1:9/account/logs' failed. Azure Error: [] "
        "Fail to get a new connection for: http://127.0.0.1:9. Could not resolve hostname",
        "When getting information for key '0.log' in bucket 'logs': AWS Error UNKNOWN (HTTP status 500) during HeadObject operation: "
        "No response body.",
        "When reading information for key '0.log' in bucket 'logs': AWS Error UNKNOWN (HTTP status 429) during HeadObject operation: "
        "No response body.",
        "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of Received HTTP status code: 503 "
        "error_info={reason=, domain=})",
        "GetProperties failed for 'http://127.0.0.1:9/account/logs/0.log'. Cannot initialise an ObjectInputFile without knowing the file "
        "size. Azure Error: [] 500 Internal Server Error Request ID:",
    ],
)
def test_a_server_that_does_not_answer_is_no_damage(said: str) -> None:
    """What clients say of it, or of one that answers with an error of its own, after they tried for some seconds, or a minute."""
    with (
        pytest.raises(MissingComponent, match=r"s3://logs/0.log cannot be reached: "),
        urls.translated("s3://logs/0.log"),
    ):
        raise OSError(said)


def test_gs_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(MissingComponent, match=r"gs://bucket/.* cannot be opened without credentials") as raised:
        source_files("gs://bucket/0.log?retry_limit_seconds=1")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in raised.value.hint


@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
def test_an_account_key_of_azure_is_ignored(scheme: str) -> None:
    with pytest.raises(MissingComponent, match=r"cannot be opened without credentials") as raised:
        source_files(f"{scheme}://account:a2V5@127.0.0.1:1/logs/0.log?enable_tls=false")
    assert "SAS token" in raised.value.hint
    assert "a2V5" not in raised.value.message


def test_a_file_system_that_nobody_knows() -> None:
    with pytest.raises(Unsupported, match="there is no file system ftp://"):
        source_files("ftp://host/0.log")


def check_truncated(path: str, cut: Cut, truncate: Callable[[], object]) -> None:
    """An object that became shorter by 1,000 bytes after it was planned is one failed slice."""
    pieces = plan_slices(source_files(path), cut)
    truncate()
    engine = LocalEngine(1)
    found = dict(engine.run(ReadEntries(columns=COLUMNS), pieces, lambda _: None))
    assert [failed.piece for failed in engine.failed] == [pieces[-1]]
    assert "became shorter" in engine.failed[0].reason
    assert set(found) == set(pieces[:-1])


def test_a_truncated_object_is_one_failed_slice(tmp_path: Path) -> None:
    log = Path(shutil.copy(FOLDER / "0.log", tmp_path))
    check_truncated(log.as_uri(), Cut(1 << 20), lambda: os.truncate(log, log.stat().st_size - 1000))


@pytest.fixture(scope="module")
def bucket() -> str:
    """The URL of a bucket with the entry logs; ``{}`` stands for the object."""
    url = s3_bucket("logs")
    system, _ = fs.FileSystem.from_uri(url.format("x"))
    for log in FOLDER.glob("*.log"):
        with system.open_output_stream(f"logs/current/{log.name}") as out:
            out.write(log.read_bytes())
    return url


def test_a_bookies_disk_is_fetched(bucket: str, tmp_path: Path) -> None:
    """Whole, from the prefix or its ``current``; a second time nothing is."""
    text = fetch_bookie(f"bk1={bucket.format('')}", tmp_path / "kept")
    assert text.startswith(f"bk1={tmp_path}/kept/")
    found = {file.name: file for file in Path(text.partition("=")[2]).iterdir()}
    assert {name: file.read_bytes() for name, file in found.items()} == {
        file.name: file.read_bytes() for file in FOLDER.glob("*.log") if file.stat().st_size
    }
    inodes = {name: file.stat().st_ino for name, file in found.items()}
    assert fetch_bookie(f"bk1={bucket.format('')}", tmp_path / "kept") == text
    assert "secret" not in text
    assert {name: file.stat().st_ino for name, file in found.items()} == inodes


def test_buckets_of_one_name_at_two_places_are_two(bucket: str, tmp_path: Path) -> None:
    here = bucket.format("").replace("key:secret", "anonymous")
    there = here.replace("us-east-1", "us-west-2")
    found = [fetch_bookie(url, None, tmp_path / "remote") for url in (here, there)]
    assert len({*found}) == 2
    for place, region in zip(found, ("us-east-1", "us-west-2"), strict=True):
        assert region in (Path(place) / ".0.log.url").read_text()


def test_logs_at_a_url(bucket: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same as of local files; slices end inside records, and little is fetched behind them."""
    here = [FOLDER / name for name in ("0.log", "1.log")]
    urls = [bucket.format(f"current/{log.name}") for log in here]
    records = [[*pa.log_records(log)] for log in here]
    verdicts = [pa.verify_logs(log)[0] for log in here]
    monkeypatch.setattr("pulsar_admin.store.index.scan.cut_for", lambda _: Cut(300_000))
    monkeypatch.setattr("pulsar_admin.store.scan.sources.READ_AHEAD_BYTES", 10)
    assert [[*pa.log_records(url)] for url in urls] == records
    for url, verdict in zip(urls, verdicts, strict=True):
        (found,) = pa.verify_logs(url)
        assert found.path == url.replace("key:secret@", "")
        assert structs.replace(found, path=verdict.path) == verdict
    damaged = bytearray(here[0].read_bytes())
    damaged[3_000_000] ^= 1
    (tmp_path / "0.log").write_bytes(damaged)
    (bad,) = pa.verify_logs((tmp_path / "0.log").as_uri())
    assert bad.problems == pa.verify_logs(tmp_path / "0.log")[0].problems == 1
    assert [log.size_bytes for log in pa.log_files(urls[0])] == [here[0].stat().st_size]
    result = cli.on(tmp_path / "store", f"store import standalone {urls[0]}")
    assert (result.exit_code, result.stderr.split("?")[0]) == (2, "error: s3://logs/current/0.log")
    assert "is a URL, and a path of this machine is needed here" in result.stderr


def test_a_store_reads_logs_where_they_are(
    bucket: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The logs stay in the bucket: import, rebuild and reads answer as of a local copy, and neighbours are asked for together."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    command = ("store", "import", "cluster", "--metadata", FOLDER.parents[1] / "metadata", "--bookie")
    secret = f"bk1={bucket.format('')}"
    public = secret.replace("key:secret", "anonymous")
    for words in ((secret,), (public, "--copy")):
        refused = cli("--store", tmp_path / "refused", *command, *words)
        assert (refused.exit_code, "key:" in refused.stderr, "--fetch-to DIR" in refused.stderr) == (2, False, True)
    (tmp_path / "taken" / "file").mkdir(parents=True)
    assert cli("--store", tmp_path / "taken", *command, public).exit_code == 3
    assert [one.name for one in (tmp_path / "taken").iterdir()] == ["file"]
    for store, more in ((path, ()), (copy, ("--fetch-to", tmp_path / "kept"))):
        assert cli("--store", store, *command, public, *more).exit_code == 1  # the journal is not there
    logs = [*path.glob("remote/*/*/*.log")]
    assert len(logs) == sum(log.stat().st_size > 0 for log in FOLDER.glob("*.log"))
    assert sum(log.stat().st_blocks * 512 for log in logs) < 50_000 < sum(log.stat().st_size for log in logs)
    path, asked = path.rename(tmp_path / "moved"), list[int]()
    read = urls._read
    monkeypatch.setattr(urls, "_read", lambda url, start, count: (asked.append(count), read(url, start, count))[1])
    for question in ("store index --rebuild --format json", "ledgers verify", "topics read public/default/plain"):
        answers = [cli.on(store, question) for store in (path, copy)]
        assert answers[0].exit_code == answers[1].exit_code
        assert answers[0].stdout.replace(str(path), str(copy)) == answers[1].stdout
    assert 0 < len(asked) < 40
    cli.on(path, "store preflight").ends(5, "the store was moved")
    cli.on(path, "store refresh")
    for store in (path, copy):
        cli.on(store, "store preflight").ends(3, "the index of bookie bk1 was not fetched")
    (tables,) = [cli.on(path, f"store export tables {tmp_path / 'tables'}")]
    assert (tables.exit_code, "its bytes are at s3://***@logs/current/" in tables.stderr) == (6, True)


@pytest.mark.parametrize("harm", ["gone", "cut", "another"])
def test_an_object_that_a_store_reads_and_that_is_not_as_it_was(
    harm: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The index stays, and the object is named. (Slices of objects follow from --memory.)"""
    fetched: list[int] = []
    fetch = sources._fetch
    monkeypatch.setattr(sources, "_fetch", lambda piece, back: (fetched.append(piece.bytes), fetch(piece, back))[1])
    store, log = tmp_path / "store", tmp_path / "bucket" / "0.log"
    log.parent.mkdir()
    shutil.copy(FOLDER / "0.log", log)
    words = ("--metadata", FOLDER.parents[1] / "metadata", "--bookie", f"bk1={log.parent.as_uri()}")
    cli("--store", store, "--memory", "204M", "store", "import", "cluster", *words)
    assert sum(fetched) >= 2 * max(fetched) > 0
    before = cli.on(store, "ledgers list").stdout
    if harm == "gone":
        log.unlink()
    elif harm == "another":
        log.write_bytes(bytes(log.stat().st_size))
        os.utime(log, (0, 0))
    else:
        os.truncate(log, log.stat().st_size // 2)
    cli.on(store, "store index --rebuild").ends(6, "1 file cannot be indexed again")
    assert cli.on(store, "ledgers list").stdout == before
    said = "missing" if harm == "gone" else "changed"
    assert f"{log.as_uri()} is {said}; it held" in cli.on(store, "ledgers verify").stdout
    deep = cli.on(store, "store check --deep")
    assert (deep.exit_code, "1 file gone or changed" in deep.stdout) == (1, True)
    (found,) = (row for row in cli.on(store, "doctor --deep -o json").json if row["code"] == "not-checked")
    assert found["mend"].endswith("store refresh --forget")  # without --forget it changes nothing


def test_a_refresh_lists_a_bucket_again(cli: Cli, tmp_path: Path) -> None:
    """A log that became longer and one that is new are read as if they had been there from the start; one that is gone is told.

    Also in a store that was moved since, where its beginnings have other paths.
    """
    bucket, store, other = (tmp_path / name for name in ("bucket", "store", "other"))
    bucket.mkdir()
    (bucket / "0.log").write_bytes((FOLDER / "0.log").read_bytes()[:3_000_000])
    words = ("import", "cluster", "--metadata", FOLDER.parents[1] / "metadata", "--bookie", f"bk1={bucket.as_uri()}")
    cli("--store", store, "store", *words)
    for name in ("0.log", "1.log"):
        shutil.copy(FOLDER / name, bucket)
    store = store.rename(tmp_path / "moved")
    refreshed = cli.on(store, "store refresh")
    assert "1.log" in refreshed.stdout
    assert str(tmp_path / "store") not in (store / "store.json").read_text()
    cli("--store", other, "store", *words)
    assert cli.on(store, "ledgers verify").stdout == cli.on(other, "ledgers verify").stdout
    (bucket / "1.log").unlink()
    refreshed = cli.on(store, "store refresh")
    assert (refreshed.exit_code, "1.log" in refreshed.stdout + refreshed.stderr) == (1, True)


def test_gs(tmp_path: Path) -> None:
    """The server answers one request at a time, and Google's client leaves large ones open: a log that is not large."""
    log = tmp_path / "0.log"
    log.write_bytes((FOLDER / "0.log").read_bytes()[:500_000])
    with server_of("gcp_storage_emulator", "start", "--in-memory", "--host", "127.0.0.1", "--port") as port:
        url = f"gs://anonymous@logs/{{}}?endpoint_override=127.0.0.1%3A{port}&scheme=http&retry_limit_seconds=10"
        system, _ = fs.FileSystem.from_uri(url.format("x") + "&project_id=any")
        system.create_dir("logs")
        with system.open_output_stream("logs/current/0.log") as out:
            out.write(log.read_bytes())
        files = source_files(url.format("current/*.log"))
        assert files == source_files(url.format("current")) == [(url.format("current/0.log"), -1, 500_000)]
        rows = _rows(ReadEntries(columns=COLUMNS), plan_slices(files, Cut(200_000)))
        assert rows == _rows(ReadEntries(columns=COLUMNS), plan_slices(source_files(str(log)), Cut()))
        assert len(rows) > 100
        with pytest.raises(StoreError):
            source_files(url.format("nothing/*.log"))


def test_nothing_in_a_key_is_decoded() -> None:
    """As in Hadoop, where new Path("s3a://keys/a%20b/1.log").toUri().getPath() is /a%20b/1.log."""
    url = s3_bucket("keys")
    system, _ = fs.FileSystem.from_uri(url.format("x"))
    for number, key in enumerate(("a%20b", "a b", "a+b"), 1):
        with system.open_output_stream(f"keys/{key}/{number}.log") as out:
            out.write(bytes([number]) * number)
    for number, key in enumerate(("a%20b", "a b", "a+b"), 1):
        one = url.format(f"{key}/{number}.log")
        for pattern in (one, url.format(key), url.format(f"{key}/*.log"), url.format(f"{key[:2]}*/{number}.log")):
            assert source_files(pattern) == [(one, -1, number)]
        assert read_bytes(one, 0, 9) == bytes([number]) * number
    Folder.of(url.format("tables")).replace("topics/cluster=eu%2F1/part", b"rows")
    assert system.get_file_info("keys/tables/topics/cluster=eu%2F1/part").size == 4
    assert Folder.of(url.format("tables")).names("topics") == ["cluster=eu%2F1"]


def test_s3(bucket: str) -> None:
    local = _rows(ReadEntries(columns=COLUMNS), plan_slices(source_files(str(FOLDER)), Cut()))
    for pattern in ("current", "current/*.log"):
        files = source_files(bucket.format(pattern))
        assert sum(size for _, _, size in files) == sum(log.stat().st_size for log in FOLDER.glob("*.log"))
        assert _rows(ReadEntries(columns=COLUMNS), plan_slices(files, Cut(2 << 20))) == local


@pytest.mark.parametrize("level", ["entries", "messages"])
def test_rows_and_errors_hold_no_key_of_the_bucket(bucket: str, level: str) -> None:
    from pulsar_admin.store.scan.datasource import PulsarEntries

    path = bucket.format("short/0.log")
    system, key = fs.FileSystem.from_uri(path)
    with system.open_output_stream(key) as out:
        out.write((FOLDER / "0.log").read_bytes()[:500_000])
    source = PulsarEntries({"path": path, "level": level, "columns": "path"})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    paths = {row["path"] for batch in reader.read(part) for row in batch.to_pylist()}
    assert [found.partition("?")[0] for found in paths] == ["s3://logs/short/0.log"]
    with system.open_output_stream(key) as out:
        out.write((FOLDER / "0.log").read_bytes()[:1000])
    nothing = PulsarEntries({"path": bucket.format("nothing/*.log")})
    for fails, said in (
        (lambda: list(reader.read(part)), r"s3://\*\*\*@logs/short/0.log\S* became shorter"),
        (lambda: nothing.reader(nothing.schema()), r"no entry log at s3://\*\*\*@logs/nothing/"),
    ):
        with pytest.raises(ValueError, match=said) as raised:
            fails()
        assert "secret" not in str(raised.value)


def test_what_is_shown_of_a_path() -> None:
    assert shown_path("/data/token=a@b/0.log") == "/data/token=a@b/0.log"
    url = "abfs://me:p%40ss@box@host/x@y/0.log?client_secret=abc&tenant_id=t"
    assert shown_path(url) == "abfs://host/x@y/0.log?client_secret=***&tenant_id=t"


def test_a_truncated_object_on_s3(bucket: str) -> None:
    path, whole = bucket.format("cut/0.log"), (FOLDER / "0.log").read_bytes()
    system, key = fs.FileSystem.from_uri(path)

    def put(data: bytes) -> None:
        with system.open_output_stream(key) as out:
            out.write(data)

    put(whole)
    check_truncated(path, Cut(2 << 20), lambda: put(whole[:-1000]))


def test_nothing_in_the_bucket(bucket: str) -> None:
    with pytest.raises(StoreError):
        source_files(bucket.format("nothing/*.log"))
