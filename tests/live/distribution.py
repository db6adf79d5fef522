"""Where Apache Pulsar's binary distributions are on this machine; fetched from Maven Central when they are nowhere.

``python -m tests.live.distribution`` makes both and names their folders.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

VERSION = "4.0.8"
OLDER = "2.11.0"
NEWER = "4.2.4"
NEXT = "5.0.1"
"""``NEWER`` and ``NEXT`` have no binary distribution on Maven Central: their jars are taken one by one, scripts and settings
from ``VERSION``. ``NEXT`` needs Java 21 (``find_java``) and settings that those scripts do not know (``environment_of``).
"""

_GROUP_PATH = Path("org/apache/pulsar/pulsar-server-distribution")
_CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "pulsar"
_REPOSITORY = Path.home() / ".m2" / "repository"
_JARS = ("pulsar-broker", "pulsar-client-original", "pulsar-client-admin-original", "pulsar-transaction-coordinator")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies><dependency>
    <groupId>org.apache.pulsar</groupId><artifactId>pulsar</artifactId><version>{version}</version>
    <type>pom</type><scope>import</scope>
  </dependency></dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
)
_PINS = """
com.fasterxml.jackson.core 2.21 jackson-annotations
org.eclipse.jetty.websocket 12.1.12 jetty-websocket-jetty-client jetty-websocket-jetty-api
org.eclipse.jetty.ee10.websocket 12.1.12 jetty-ee10-websocket-jetty-server
com.fasterxml.jackson.module 2.21.6 jackson-module-jsonSchema
com.typesafe.netty 2.0.17 netty-reactive-streams
org.asynchttpclient 3.0.13 async-http-client
org.apache.zookeeper 3.9.5 zookeeper zookeeper-jute
org.apache.bookkeeper 4.18.0 bookkeeper-server bookkeeper-common bookkeeper-common-allocator bookkeeper-proto
org.apache.bookkeeper 4.18.0 bookkeeper-tools-framework circe-checksum cpu-affinity native-io statelib stream-storage-api
org.apache.bookkeeper 4.18.0 stream-storage-common stream-storage-java-client stream-storage-java-client-base
org.apache.bookkeeper 4.18.0 stream-storage-proto stream-storage-server stream-storage-service-api
org.apache.bookkeeper 4.18.0 stream-storage-service-impl bookkeeper-slogger-api bookkeeper-slogger-slf4j
org.apache.bookkeeper.http 4.18.0 http-server vertx-http-server
org.apache.bookkeeper.stats 4.18.0 bookkeeper-stats-api prometheus-metrics-provider codahale-metrics-provider
org.apache.distributedlog 4.18.0 distributedlog-core distributedlog-common distributedlog-protocol
"""
"""Of ``NEXT``, whose own pom does not say them: group, version, artifacts."""
_BOOKKEEPER, _BOOKKEEPER_JARS = "4.18.0", "4.18.2"
"""A class that the broker of ``NEXT`` needs is in the newer jars alone, whose parent pom is not to be had."""
_NEXT_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>{pins}</dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_NEXT_JARS = (*_JARS, "pulsar-client-tools")
_EXCLUDED = (
    "<exclusions>"
    + "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in (("io.netty", "netty-resolver-dns-native-macos"), ("org.jline", "*"))
    )
    + "</exclusions>"
)
_LOGGING = (("log4j-core", "2.25.4"), ("log4j-slf4j2-impl", "2.25.4"))
_LOG_CONFIGURATION = """<Configuration status="WARN">
  <Appenders><Console name="console"><PatternLayout pattern="%d{HH:mm:ss,SSS} %-5p %c{1} - %m%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""
# The log configuration of VERSION counts log lines with it; without it the broker runs and logs nothing.
_LOG_COUNTER = _DEPENDENCY.format(group="io.prometheus", name="simpleclient_log4j2", version="0.16.0")


def find_distribution(version: str = VERSION) -> Path:
    """The folder ``apache-pulsar-<version>``: ``VERSION``'s is ``$PULSAR_DIST`` if set, else made once in the cache folder.

    The archive is taken from the local Maven repository; Maven is asked to download it (245 MB, ``OLDER``'s 404 MB) when it is
    not there. The jars of ``NEWER`` and ``NEXT`` (240 MB each) are always Maven's to find.
    """
    given = os.environ.get("PULSAR_DIST") if version == VERSION else None
    folder = Path(given) if given else _CACHE / f"apache-pulsar-{version}"
    if not given and not folder.is_dir():
        _make({NEWER: _assemble, NEXT: _assemble_next}.get(version, _unpack), folder)
    assert (folder / "bin" / "pulsar").is_file(), f"{folder} is not a Pulsar distribution"
    return folder


def _make(make: Callable[[Path, str], None], folder: Path) -> None:
    """Make beside the target and rename, so that an interrupted run leaves nothing that looks finished."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(scratch, folder.name)
        (scratch / folder.name).rename(folder)
    finally:
        shutil.rmtree(scratch)


def _unpack(scratch: Path, name: str) -> None:
    version = name.removeprefix("apache-pulsar-")
    archive = _REPOSITORY / _GROUP_PATH / version / f"pulsar-server-distribution-{version}-bin.tar.gz"
    if not archive.is_file():
        coordinates = f"org.apache.pulsar:pulsar-server-distribution:{version}:tar.gz:bin"
        get = ["dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false"]
        _maven(get, scratch)  # outside any Maven project
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(scratch)], check=True)


def _assemble(scratch: Path, name: str) -> None:
    version = name.removeprefix("apache-pulsar-")
    jars = (_DEPENDENCY.format(group="org.apache.pulsar", name=jar, version=version) for jar in _JARS)
    (scratch / "pom.xml").write_text(_POM.format(version=version, dependencies="".join((*jars, _LOG_COUNTER))))
    folder = scratch / name
    _maven(["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"], scratch)
    for part in ("bin", "conf"):
        shutil.copytree(find_distribution() / part, folder / part)


def _assemble_next(scratch: Path, name: str) -> None:
    version = name.removeprefix("apache-pulsar-")
    rows = [(group, number, one) for group, number, *names in map(str.split, _PINS.split("\n")[1:-1]) for one in names]
    pins = "".join(_DEPENDENCY.format(group=group, name=one, version=number) for group, number, one in rows)
    jars = [
        _DEPENDENCY.format(group="org.apache.pulsar", name=jar, version=version).replace(
            "</dependency>", f"{_EXCLUDED}</dependency>"
        )
        for jar in _NEXT_JARS
    ]
    jars += [_DEPENDENCY.format(group="org.apache.logging.log4j", name=jar, version=number) for jar, number in _LOGGING]
    (scratch / "pom.xml").write_text(_NEXT_POM.format(pins=pins, dependencies="".join(jars)))
    folder = scratch / name
    lib = folder / "lib"
    _maven(["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={lib}"], scratch)
    for old in sorted(lib.glob(f"*-{_BOOKKEEPER}.jar")):
        artifact = old.name.removesuffix(f"-{_BOOKKEEPER}.jar")
        found = next((_REPOSITORY / "org" / "apache").glob(f"**/{artifact}/{_BOOKKEEPER}/{old.name}"))
        group = ".".join(found.relative_to(_REPOSITORY).parts[:-3])
        coordinates = f"{group}:{artifact}:{_BOOKKEEPER_JARS}"
        if "-tests" not in artifact:
            _maven(["dependency:get", f"-Dartifact={coordinates}", "-Dtransitive=false"], scratch / name)
            shutil.copy(found.parents[1] / _BOOKKEEPER_JARS / f"{artifact}-{_BOOKKEEPER_JARS}.jar", lib)
            old.unlink()
    for part in ("bin", "conf"):
        shutil.copytree(find_distribution() / part, folder / part)
    (folder / "conf" / "log4j2.yaml").unlink(missing_ok=True)
    (folder / "conf" / "log4j2.xml").write_text(_LOG_CONFIGURATION)


def find_java(least: int = 21) -> Path:
    """The home of a Java of at least that version: ``$JAVA_HOME``, or one below /usr/lib/jvm."""
    homes = [Path(os.environ.get("JAVA_HOME", "/nonexistent")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        release = home / "release"
        if release.is_file() and (home / "bin" / "java").is_file():
            found = re.search(r'JAVA_VERSION="(\d+)', release.read_text())
            if found is not None and int(found[1]) >= least:
                return home
    raise AssertionError(f"no Java {least} or newer in JAVA_HOME or below /usr/lib/jvm")


def find_jar(artifact: str, version: str) -> Path:
    """A jar of Pulsar that no distribution here has, by itself; fetched where the local Maven repository lacks it."""
    jar = _REPOSITORY / "org" / "apache" / "pulsar" / artifact / version / f"{artifact}-{version}.jar"
    if not jar.is_file():
        get = ["dependency:get", f"-Dartifact=org.apache.pulsar:{artifact}:{version}", "-Dtransitive=false"]
        _maven(get, Path(tempfile.gettempdir()))
    return jar


def environment_of(distribution: Path) -> dict[str, str]:
    """What the scripts of DISTRIBUTION need beside what they find themselves."""
    configuration = distribution / "conf" / "log4j2.xml"
    if not configuration.is_file():
        return {}
    java = str(find_java())
    return {"JAVA_HOME": java, "PULSAR_LOG_CONF": str(configuration)}


def _maven(goal: list[str], folder: Path) -> None:
    subprocess.run(["mvn", "-q", "-B", *goal, f"-Dmaven.repo.local={_REPOSITORY}"], cwd=folder, check=True)


def main() -> None:
    """Make the distributions that most live tests take."""
    for version in (VERSION, NEWER, NEXT):
        print(find_distribution(version))


if __name__ == "__main__":
    main()
