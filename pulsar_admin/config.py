"""Settings from the command line, the environment (``PULSAR_ADMIN_*``) and a TOML file.

The command line overrides the environment, which overrides the file that ``PULSAR_ADMIN_CONFIG`` names. This is the
only module that reads the environment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from pulsar_admin.store.errors import InvalidValue, NotFound

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path

    from pulsar_admin.arguments import Clock
    from pulsar_admin.query import Query

PREFIX = "PULSAR_ADMIN_"
Form = Literal["table", "json", "jsonl", "csv", "plain"]
"""A format of output. Not an enumeration, whose class costs every cold command; ``assert_never`` checks that each is handled."""
FORMATS: tuple[Form, ...] = get_args(Form)
CLOCKS = ("auto", "publish", "broker", "event")
COLORS = ("auto", "always", "never")

_FLAGS = ("spark", "spark_local_fallback", "dry_run", "yes", "quiet", "no_progress")
_CHOICES = {"output": FORMATS, "clock": CLOCKS, "color": COLORS, "progress": ("bar", "json", "none")}
ENVIRONMENT_NAMES = (
    "store",
    "output",
    "spark",
    "spark_master",
    "spark_remote",
    "spark_conf",
    "spark_local_fallback",
    "now",
    "tz",
    "clock",
    "quiet",
    "no_progress",
    "progress",
    "color",
    "verbose",
    "jobs",
    "memory",
    "interceptors",
    "broker_conf",
    "wait",
)
"""Settings that may come from the environment or the file; consent (``--yes``, ``--dry-run``) may not."""


class Settings(Struct, frozen=True):
    """Global options, resolved. ``output`` None means the command's own default."""

    store: Path
    output: Form | None
    now_ms: int
    tz: tzinfo | None
    clock: Clock
    spark: bool
    spark_master: str | None
    spark_remote: str | None
    spark_conf: tuple[tuple[str, str], ...]
    spark_local_fallback: bool
    """Whether files that Spark's workers do not see are read here."""
    dry_run: bool
    plan: Path | None
    yes: bool
    quiet: bool
    progress: str
    """``bar`` (on a terminal), ``json`` (lines on stderr) or ``none``."""
    color: str
    verbose: bool
    jobs: int
    memory_bytes: int | None
    interceptors: tuple[str, ...] | None = None
    """Broker entry metadata that is written before entries; None: not configured, (): none."""
    wait_ms: int = 0
    """How long a writer waits for another one."""
    store_given: bool = False
    """Whether anything says where the store is; else it is the default's place."""
    total: bool = False
    fail_if: str = ""
    """``any`` or ``none``: a list with any row, or with none, makes the exit code 1."""
    pager: str | None = None
    """The command that shows output page by page; None: it was not asked for."""
    query: Query | None = None
    """Which rows of a list are shown; never from the environment or the file, as rows would be missing unasked."""
    now_given: bool = False
    """Whether ``--now`` says what time it is, not the clock."""
    tables: str | None = None
    """Where the tables are that answer in place of the store; never from the environment or the file, as changes refuse them."""
    cluster: str | None = None
    """Whose tables; None: those of the only cluster there."""


def check_path(text: str) -> None:
    """Raise InvalidValue for a URL where a local path is required: as a path it would mean a local file."""
    scheme, colon, _ = text.partition("://")
    if not colon or not scheme.isascii() or not scheme.replace("+", "").isalnum():
        return
    from pulsar_admin.store.urls import shown_path

    raise InvalidValue(
        f"{shown_path(text)} is a URL, and a path of this machine is needed here",
        hint="mount it, or copy the files; `logs verify`, `logs dump`, `store import cluster --bookie` and pulsar_entries on Spark "
        "read URLs",
        value=shown_path(text),
    )


def build_settings(given: Mapping[str, Any]) -> Settings:  # Any: raw option values from click
    """Return the settings from command-line options, environment and file; raises InvalidValue."""
    # Imported here: --help builds no settings and needs none of them.
    from pathlib import Path

    values = {**_file_values(), **_environment_values(), **given}
    for name, allowed in _CHOICES.items():
        if values.get(name) is not None and values[name] not in allowed:
            raise InvalidValue(f"{name} is {values[name]!r}", hint=f"one of {', '.join(allowed)}", value=values[name])
    for name in _FLAGS:
        values[name] = _flag(name, values.get(name, False))
    if given.get("fail_if_any") and given.get("fail_if_none"):
        raise InvalidValue("--fail-if-any and --fail-if-none: one of them always fails; give only one")
    check_path(str(values.get("store", "")))
    now_ms, tz, memory_bytes, wait_ms = _spelled(values)
    quiet = values["quiet"] or values["no_progress"]
    return Settings(
        store=Path(str(values.get("store", "pulsar-store"))),
        output=values.get("output"),
        now_ms=now_ms,
        tz=tz,
        clock=values.get("clock") or "auto",
        spark=values["spark"] or bool(given.get("spark_master") or given.get("spark_remote")),
        spark_master=values.get("spark_master"),
        spark_remote=values.get("spark_remote"),
        spark_conf=_pairs(values.get("spark_conf", ())),
        spark_local_fallback=values["spark_local_fallback"],
        dry_run=values["dry_run"],
        plan=Path(given["plan"]) if given.get("plan") else None,
        yes=values["yes"],
        quiet=values["quiet"],
        progress=values.get("progress") or ("none" if quiet or given.get("pager") else "bar"),
        color=values.get("color") or ("never" if os.environ.get("NO_COLOR") else "auto"),
        verbose=_flag("verbose", values.get("verbose", False)),
        jobs=_jobs(values.get("jobs")),
        memory_bytes=memory_bytes,
        interceptors=_interceptors(values, given),
        wait_ms=wait_ms,
        store_given="store" in values,
        total=bool(given.get("total")),
        fail_if="any" if given.get("fail_if_any") else "none" if given.get("fail_if_none") else "",
        pager=default_pager() if given.get("pager") else None,
        query=_query(given, now_ms, tz),
        now_given=bool(values.get("now")),
        tables=given.get("tables"),
        cluster=given.get("tables_cluster"),
    )


def _query(given: Mapping[str, Any], now_ms: int, tz: tzinfo | None) -> Query | None:  # Any: as above
    if not any(given.get(name) for name in ("where", "sort", "top", "columns")):
        return None
    from pulsar_admin.query import parse_query  # most runs ask for nothing

    return parse_query(given, now_ms=now_ms, tz=tz)


def _spelled(values: Mapping[str, Any]) -> tuple[int, tzinfo | None, int | None, int]:  # Any: as the option was given
    """Return the current time, zone, memory limit in bytes and wait in ms from setting values."""
    now, tz, memory, wait = (
        str(values[name]) if values.get(name) else None for name in ("now", "tz", "memory", "wait")
    )
    now_ms = time.time_ns() // 1_000_000
    if now is tz is memory is wait is None:
        return now_ms, None, None, 0
    # 1 ms, and most runs are told none of them.
    from pulsar_admin.store.timespec import parse_duration_ms, parse_size_bytes, parse_time, parse_tz

    zone = None if tz is None else parse_tz(tz)
    return (
        now_ms if now is None else int(parse_time(now, now_ms=now_ms, tz=zone)),
        zone,
        None if memory is None else parse_size_bytes(memory),
        0 if wait is None else parse_duration_ms(wait),
    )


def _interceptors(values: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, ...] | None:  # Any: as above
    """Return the given interceptors, or those in the given broker.conf; a command-line option overrides other sources."""
    names, conf = values.get("interceptors"), values.get("broker_conf")
    if names is conf is None:
        return None
    from pathlib import Path

    from pulsar_admin.store.codec.interceptors import parse_interceptors, read_broker_conf  # only writers are told

    if names is None or (given.get("broker_conf") and not given.get("interceptors")):
        return read_broker_conf(Path(str(conf)))
    return parse_interceptors(str(names))


def _environment_values() -> dict[str, Any]:  # Any: text, or a tuple of texts
    values: dict[str, Any] = {}  # Any: as above
    for name in ENVIRONMENT_NAMES:
        text = os.environ.get(PREFIX + name.upper())
        if text:
            values[name] = tuple(text.split(",")) if name == "spark_conf" else text
    return values


def _file_values() -> dict[str, Any]:  # Any: TOML values
    path = os.environ.get(f"{PREFIX}CONFIG")
    if not path:
        return {}
    # Imported here: 5 ms, and most runs have no such file.
    import tomllib

    from pulsar_admin.store.files import NotRegular, open_file

    try:
        with open_file(path) as file:
            values = {key.replace("-", "_"): value for key, value in tomllib.load(file).items()}
    except NotRegular as error:
        raise InvalidValue(
            f"cannot read {path}: {error.strerror}", hint=f"{PREFIX}CONFIG names it", path=path
        ) from error
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}", hint=f"{PREFIX}CONFIG names it", path=path) from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested beyond the stack
        raise InvalidValue(f"{path} is not TOML: {error}", hint='write lines such as store = "/data/store"') from error
    unknown = sorted(set(values) - set(ENVIRONMENT_NAMES))
    if unknown:
        raise InvalidValue(f"{path} sets unknown {', '.join(unknown)}", hint=f"known: {', '.join(ENVIRONMENT_NAMES)}")
    for name, value in values.items():
        if isinstance(value, str) and "\0" in value:
            raise InvalidValue(f"{path}: {name} holds a zero byte, which no path does", hint=f"write {name} without it")
    if isinstance(values.get("spark_conf"), dict):
        values["spark_conf"] = [f"{key}={_plain(path, key, value)}" for key, value in values["spark_conf"].items()]
    return {name: _typed(path, name, value) for name, value in values.items()}


def _typed(path: str, name: str, value: object) -> object:
    """Return a setting of the file in the environment's spelling; raises InvalidValue for a value of another type."""
    if name == "spark_conf" and isinstance(value, str):
        return tuple(value.split(","))
    if name == "spark_conf" and isinstance(value, list):
        return tuple(str(_plain(path, name, item)) for item in value)
    plain = _plain(path, name, value)
    return plain if isinstance(plain, bool) and name in (*_FLAGS, "verbose") else str(plain)


def _plain(path: str, name: str, value: object) -> object:
    if isinstance(value, (dict, list, float)):
        kind = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a fraction"
        raise InvalidValue(f"{path} sets {name} to {kind}", hint="write one value, as on the command line", path=path)
    return value


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
        raise InvalidValue(f"{name} is {value!r}", hint="write true or false", value=str(value))
    return word in {"1", "true", "yes", "on"}


def _jobs(value: object) -> int:
    """Return how many processes to use; 0 if not set: one per core if that is faster."""
    if value is None:
        return 0
    from pulsar_admin.store.codec.strict_values import parse_integer  # --help says no number

    text = str(value)
    number = parse_integer(text)
    if number is None or not 1 <= number <= 1024:
        raise InvalidValue(f"jobs is {text[:40]!r}", hint="write a number of processes from 1 to 1024", value=text)
    return number


def _pairs(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for text in texts:
        if "=" not in text:
            raise InvalidValue("a spark-conf is not a pair", hint="write key=value")  # it may be half of a secret
    return tuple((text.partition("=")[0], text.partition("=")[2]) for text in texts)


def environment_variables() -> tuple[str, ...]:
    """Return the names of every environment variable that changes what the program does."""
    return (*(PREFIX + name.upper() for name in ENVIRONMENT_NAMES), f"{PREFIX}CONFIG", "NO_COLOR", "PAGER")


def colors_text(color: str) -> bool:
    """Return whether text on a terminal is in color where ``--color`` is ``color``."""
    return color == "always" or (color != "never" and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"))


def preset_color(arguments: Sequence[str]) -> str:
    """Return the value of ``--color`` in the raw arguments or the environment, for errors before settings are built."""
    words = " ".join(arguments).replace("--color=", "--color ").partition("--color ")[2].split()
    file: dict[str, Any] = {}  # Any: values of TOML
    with suppress(InvalidValue, NotFound):
        file = _file_values()
    preset = "never" if os.environ.get("NO_COLOR") else "auto"
    return str((words and words[0]) or os.environ.get(f"{PREFIX}COLOR") or file.get("color") or preset)


def preset_output() -> str | None:
    """Return the output format that the environment sets, for errors before settings are built."""
    return os.environ.get(f"{PREFIX}OUTPUT")


def completion_instruction(program: str) -> tuple[str, str]:
    """Return (name, value) of the variable with which a shell requests completions; empty texts if it does not."""
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    return variable, os.environ.get(variable, "")


def completion_line() -> tuple[str, str]:
    """Return the command line up to the cursor that is to be completed, and the characters at which bash breaks words."""
    return os.environ.get("COMP_LINE", ""), os.environ.get("COMP_WORDBREAKS", "")


def default_pager() -> str:
    """Return the command that shows output page by page; less ends at once if it all fits."""
    return os.environ.get("PAGER") or "less -RFX"


def java_home() -> str | None:
    """Return the environment's ``JAVA_HOME``, None if not set."""
    return os.environ.get("JAVA_HOME")


def limit_library_threads() -> None:
    """Keep numpy, before it is imported, from starting a thread per core for linear algebra, which is not used."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
