"""``topics info-internal``."""

from __future__ import annotations

from pulsar_admin.columns import Column
from pulsar_admin.commands.topics.answers import choose, emit_answers
from pulsar_admin.commands.topics.internals import explain_option
from pulsar_admin.context import App
from pulsar_admin.jsonify import dump_gson
from pulsar_admin.options import TopicSelection, command, pass_app, topics_argument
from pulsar_admin.store.errors import MetadataCorrupt, TopicNotFound


def _time_ms(text: str) -> int:
    """Return the time of upstream's text, which has as many digits of a second as are not 0."""
    from pulsar_admin.store.timespec import parse_time

    return parse_time(text, now_ms=0)


_COLUMNS = (
    Column("VERSION", "version", "id", drop=1),
    Column("CREATED", lambda row: _time_ms(row["creationDate"]), "time"),
    Column("MODIFIED", lambda row: _time_ms(row["modificationDate"]), "time", drop=2),
    Column("LEDGERS", lambda row: len(row["ledgers"]), "number"),
    Column("CURSORS", lambda row: len(row["cursors"]), "number"),
)


def _emit(app: App, info: object) -> None:
    """Write INFO as upstream does, which prints this command's answer by Gson and every other's by Jackson."""
    app.emit(info, plain=None if app.settings.output else dump_gson(info))


@command(
    "info-internal",
    examples=[
        "pulsar-admin topics info-internal acme/iot/skewed",
        "pulsar-admin topics info-internal acme/orders/parts",
        "pulsar-admin topics info-internal --all-topics -o table",
    ],
    output="The stored metadata of the topic and its cursors with upstream's keys; of a partitioned topic `partitions`: name → "
    "the same.",
    errors=[TopicNotFound, MetadataCorrupt],
)
@topics_argument
@explain_option
@pass_app
def info_internal(app: App, selection: TopicSelection, explained: bool) -> None:
    """Show the stored metadata of a topic.

    A cursor with a cursorsLedgerId is not at the markDelete shown here: use stats-internal.
    """
    with app.session.read() as txn:
        chosen = choose(app, txn, selection)
        found = list(chosen.each(app, lambda name: app.session.topic(name).internal_info(publish_times=explained)))
    if selection.single is not None and selection.single not in chosen.names:
        _emit(app, {"version": 0, "partitions": {str(name): info for name, info in found}})
    elif chosen.several or app.settings.output == "csv":
        emit_answers(app, found, _COLUMNS, several=chosen.several)
    else:
        _emit(app, found[0][1])
