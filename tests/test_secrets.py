"""Passwords, tokens and keys are never printed: not in errors, warnings or JSON, wherever the text comes from."""

from pathlib import Path

import pytest

import pulsar_admin
from pulsar_admin.errors import Failure
from pulsar_admin.store.engine.spark_session import cause_of
from pulsar_admin.store.errors import MissingComponent, StoreError
from pulsar_admin.store.secrets import hide_secrets, hide_url
from tests.conftest import Cli

SECRET = "geheim'+/=42"


@pytest.mark.parametrize(
    "url",
    [
        f"sc://host:15002/;token={SECRET}",
        f"sc://host:15002/;use_ssl=true;token={SECRET};user_id=x",
        f"sc://host:15002/;x-my-header={SECRET}",
        f"sc://host:15002/;token=a b{SECRET}",
        f"sc://user:{SECRET}@host:15002",
        "sc://geheim@host",
        "https://geheim:x@host/path",
    ],
)
def test_a_url_is_shown_without_secrets(url: str) -> None:
    shown = hide_url(url)
    assert "geheim" not in shown
    assert "host" in shown
    assert hide_url(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot connect to 'sc://h:1/;token=geheim': no route", "cannot connect to 'sc://h:1/;***': no route"),
        ("jdbc://u:geheim@db/x failed", "jdbc://***@db/x failed"),
        ("spark.hadoop.fs.s3a.secret.key=geheim, next", "spark.hadoop.fs.s3a.secret.key=***, next"),
        (
            "fs.azure.account.key.me.blob.core.windows.net=geheim next",
            "fs.azure.account.key.me.blob.core.windows.net=*** next",
        ),
        ("https://me.host/box/0.log?sv=1&sig=ge%2Fheim%3D&se=2", "https://me.host/box/0.log?sv=1&sig=***&se=2"),
        ("sig=geheim", "sig=***"),
        ("abfs://b/x?credential_kind=anonymous&a", "abfs://b/x?credential_kind=anonymous&a"),
        ("credential_kinder=geheim", "credential_kinder=***"),
        ("(sv=1;sig=geheim", "(sv=1;sig=***"),
        ("design=1 of 2", "design=1 of 2"),
        ('config password="ge heim" is set', "config password=*** is set"),
        ("Authorization: Bearer geheim.x", "Authorization: Bearer ***"),
        ("persistent://public/default/a@b has 3 entries", "persistent://public/default/a@b has 3 entries"),
        ("s3://AKIA:ge/heim+x@bucket/dir is no directory", "s3://***@bucket/dir is no directory"),
        ("b=s3:/AKIA:geheim@bucket/dir", "b=s3:/***@bucket/dir"),
        ("s3://bucket/a:b@c/0.log is gone", "s3://bucket/a:b@c/0.log is gone"),
        ("the key=value form", "the key=value form"),
        ("sc://host:15002 answers", "sc://host:15002 answers"),
    ],
)
def test_text_keeps_all_but_secrets(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown


def test_every_part_of_an_error_is_hidden() -> None:
    text = "sc://h/;token=geheim"
    failure = Failure(3, "refused", text, hint=text, context={"value": text}, plain=text)
    assert "geheim" not in failure.render_json() + failure.render_text()
    assert "geheim" not in cause_of(f"org.apache.spark.SparkException: no {text}")


@pytest.mark.parametrize(
    "options",
    [
        ("--spark-remote", "sc://127.0.0.1:1/;token=geheim"),
        ("--spark-remote", "sc://127.0.0.1:99999/;token=geheim"),
        ("--spark-remote", "http://127.0.0.1:1/;token=geheim"),
        ("--spark-master", "spark://u:geheim@127.0.0.1:1"),
        ("--spark-conf", "geheim", "--spark"),
    ],
)
def test_no_command_prints_a_token(options: tuple[str, ...], cli: Cli, demo_store: Path) -> None:
    pytest.importorskip("pyspark")
    done = cli("--store", demo_store, "store", "check", "--deep", *options, "-o", "json")
    assert done.exit_code in (2, 3), done.stderr
    assert "geheim" not in done.stdout + done.stderr
    assert "***" in done.stderr or "--spark-conf" in options


@pytest.mark.parametrize(
    "url", ["spark://h", "spark://h:99999", "spark://h:x", "spark://[::1", f"spark://{'h' * 300}:1", "sc://h:²"]
)
def test_a_port_that_is_none_is_a_usage_error(url: str, cli: Cli, demo_store: Path) -> None:
    pytest.importorskip("pyspark")
    option = "--spark-remote" if url.startswith("sc:") else "--spark-master"
    cli("--store", demo_store, "store", "check", "--deep", option, url).ends(2, "names no host and port")


def test_no_pyspark_is_still_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the address comes behind that of the package."""
    from pulsar_admin.store.engine.spark_session import SparkOptions, open_session

    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    with pytest.raises(MissingComponent), open_session(SparkOptions(master="spark://h:99999")):
        pass


@pytest.mark.parametrize("url", ["s3://KEY:hidden@[b/x/0.log", "s3://KEY:hid/den@b/0.log", "foo://KEY:hidden@b/0.log"])
def test_what_a_file_system_says_of_a_url_is_hidden(url: str) -> None:
    with pytest.raises(StoreError) as raised:
        pulsar_admin.verify_logs(url)
    said = raised.value.message
    assert "cannot be read" in said or "no file system" in said
    assert not any(word in said + repr(raised.value.context) for word in ("KEY", "hidden", "den@"))
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("target", ["namespaces acme/orders", "topics acme/orders/compacted"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_no_report_of_a_change_has_a_secret(
    target: str, more: tuple[str, ...], cli: Cli, demo_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(demo_copy)
    group, place = target.split()
    secret = "wJalrXUtnFEMI/K7MDENG"
    words = ("-d", "aws-s3", "-b", "bucket", "-r", "eu-west-1", "-i", "AKIA", "-s", secret)
    words += () if group == "namespaces" else ("-oat", "10M")
    done = cli.done(group, "set-offload-policies", place, *words, *more)
    for said in (done, cli("store", "log", "-o", "json"), cli("store", "log", "1")):
        assert secret not in said.stdout + said.stderr
    if "--dry-run" not in more:
        assert secret in cli(group, "get-offload-policies", place).stdout  # as pulsar-admin prints it
