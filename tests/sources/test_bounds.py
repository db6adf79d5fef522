"""Sources at their bounds: addresses, marks and files that are damaged, gone or cut."""

import struct
from functools import partial
from pathlib import Path

import numpy as np
from kazoo.exceptions import AuthFailedError, NoAuthError, UnimplementedError

from pulsar_admin.store.codec.zookeeper_reads import NO_AUTH, Failed
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.sources import (
    bookies,
    ensemble,
    given_bookies,
    index_places,
    journals,
    layout,
    nodes,
    zookeeper,
)
from tests.at_bounds import LONG, Answers, N, Texts, asking


def _raise(error: Exception) -> None:
    raise error


ANSWERS: Answers = {
    index_places._key_after: [((LONG,), b"\xff"), ((LONG - 1,), LONG.to_bytes(8, "big"))],
    index_places._are_inside: [
        ((np.array([0, 1, 2, 3, 5, 6]), np.array([[1, 3], [5, 6]])), [False, True, True, False, True, False])],
    index_places._join: [
        ((iter([(bytes(16), bytes(size))] * 2), 1), answer) for size, answer in ((8, bytes(24)), (7, b"?"))],
    zookeeper.LogOrder.take: [
        ((N(last=5, bad=None), None, N(zxid=zxid)), answer)
        for zxid, answer in ((6, None), (8, zookeeper.Gap(None, 5, 8, 2, None)))],
    ensemble.parse_address: [
        (("zk:65535",), ensemble.Address("zk:65535", "")), (("zk1:2181,zk2:65536",), InvalidValue)],
    bookies.size_of: [((Path("/nowhere"),), 0)],
    given_bookies._said_in: [((N(where=where), Path("/a")), said) for where, said in (("/a", ""), ("bookies:3", "bookies:3: "))],
    layout._directories: [((Path("/nowhere"), 1), [])],
    bookies.find_cookie: [((b"x", "c"), None)],
}  # fmt: skip
REFUSED: Texts = {
    ensemble.read_client: [((Path("/nowhere"),), "/nowhere cannot be read")],
    ensemble.read_client_secret: [((Path("/nowhere"),), "no password can be read from it")],
    ensemble.Session.data: [((N(address="z:1"), "/x", Failed(-5)), "z:1: /x cannot be read (error -5)"),
        ((N(address="z:1"), "/x", Failed(NO_AUTH)), "z:1: this user may not read /x")],
    ensemble._committed: [((N(address="z:1", answer=lambda _: [KeyError()]), N(commit_async=lambda: 0)),
        "gives no ids (KeyError)")],
    ensemble.Transaction.commit: [((N(_session=N(address="z:1", answer=lambda _: [NoAuthError()]),
        _request=N(commit_async=lambda: 0), _writes=[N(path="/x")]),), "z:1: this user may not write /x")],
    ensemble.Session.told: [
        ((N(address="z:1", _explained=partial(ensemble.Session._explained, N(address="z:1"))), partial(_raise, error)),
            said) for error, said in ((AuthFailedError(), "does not let this user read every node (AuthFailedError)"),
            (UnimplementedError(), "3.6 or newer is needed"), (OSError("x"), "the connection was lost (OSError: x)"))],
    index_places._iter_range: [((N(items=lambda **_: iter([(b"x", b"y")])), b"", b""), "rows of another form"),
        ((N(items=lambda **_: iter(()), iter=lambda: N(seek_for_prev=id, valid=lambda: True, status=int, key=lambda: b"k")), b"", b""),
        "a block cannot be read")],
}  # fmt: skip
SAID: Texts = {
    journals._fault: [((body, 1 if "version" in said else 6, {0: b"a"}), said) for body, said in ((bytes(3),
        "a record of 3 bytes"),
        (struct.pack(">qq", 0, 0), "an entry of 16 bytes"), (struct.pack(">qq", 0, -0x2000), "in a journal of version 1"),
        (struct.pack(">qqi", 0, -0x1000, 5), "5 bytes in record -0x1000"), (struct.pack(">qqi", 0, -0x8000, 0),
        "an explicit LAC of 0 bytes"),
        (struct.pack(">qqi", 0, -0x1000, 1) + b"b", "another master key of ledger 0"))],
    nodes.no_cluster: [(("m", ["x"]), "nothing of a cluster can be read: x"), (("m", []),
        "m has no metadata of Pulsar or BookKeeper")],
}  # fmt: skip
test_at_bounds = asking(ANSWERS, refused=REFUSED, said=SAID)
