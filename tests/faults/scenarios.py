"""The commands that are disturbed: what there was before each, and what they may leave."""

from msgspec import Struct

PLAIN = "public/default/plain"
ML_PLAIN = "public/default/persistent/plain"
DELAYED = "acme/delayed/reminders"
COMPACTED = "acme/orders/compacted"
BEFORE = "2026-11-21T09:30:00Z"


class Scenario(Struct, frozen=True):
    """A changing command. In its words {store}, {source} and {work} are paths: a store, what it was imported from, and the
    directory that holds all that may be written.

    ``before``: commands that lead there, run where the source is in ``state``. ``steps``: it commits more than once and goes on
    when run again, so what lies between old and new is good. ``repeats``: run again where all is done it does it again.
    """

    name: str
    command: str
    before: tuple[str, ...] = ()
    state: str = "clean"
    steps: bool = False
    repeats: bool = False
    target: str = ""
    """A directory of Pulsar's, or other output, that it writes."""
    in_place: bool = False
    ensemble: bool = False
    """It writes into {zookeeper}, a live ensemble that has what was imported."""
    new_target: bool = False
    """Of two that make it at once, one is done."""
    no_store: bool = False
    damaged_index: bool = False
    emptied_bookie: bool = False
    """Its bookie has lost its index, and made an empty one."""
    lost: tuple[str, ...] = ()
    """Prefixes of metadata nodes that are gone."""
    world: str = "small"


SKIP = f"topics skip {PLAIN} -s half -n 3"
NACKED = f"nacks add {PLAIN} -s half --delay 1s 29:20 29:21"
PARTS = "store import cluster --metadata {source}/metadata"
WRITTEN = ("topics dump public/default/batched --level entries --directory {work}/dump", "topics load {work}/dump")
EXPORTED = (f"topics reset-cursor {PLAIN} -s half -m 29:20", f"compaction run {COMPACTED} --from-start")
CHANGED = (SKIP, f"topics create-subscription {PLAIN} -s made -m earliest", f"topics unsubscribe {PLAIN} -s never")

FORGET = ("ledgers forget 9 18 --force",)
BACK = ("topics undelete public/default/doomed", "ledgers restore --deleted 137")

READ = tuple(f"topics clear-backlog {PLAIN} -s {name}" for name in ("never", "half", "reset-me", "expire-me", "holes"))

SCENARIOS = (
    Scenario("init", "store init", no_store=True, steps=True),
    Scenario("import", "store import standalone {source}", no_store=True, steps=True),
    Scenario("import copied", "store import standalone {source} --copy", no_store=True, steps=True),
    Scenario("import linked", "store import standalone {source} --link", no_store=True, steps=True),
    Scenario("import cluster", f"{PARTS} --bookie {{source}}/bookkeeper", no_store=True, steps=True),
    Scenario("add bookie", "store add bookie {source}/bookkeeper", before=(PARTS,), no_store=True, steps=True),
    Scenario(
        "add zookeeper",
        "store add zookeeper {source}/metadata",
        before=("store import cluster --bookie {source}/bookkeeper",),
        no_store=True,
        steps=True,
    ),
    Scenario("refresh", "store refresh", state="crashed", steps=True),
    Scenario("rebuild", "store index --rebuild", damaged_index=True),
    Scenario("skip", SKIP, repeats=True),
    Scenario("clear-backlog", f"topics clear-backlog {PLAIN} -s half"),
    Scenario(
        "reset-cursor as of",
        "topics reset-cursor public/default/fresh -s crash-holes --as-of 253:4",
        before=("store refresh",),
        state="crashed",
    ),
    Scenario("reset all", f"topics reset-cursor --all-topics -s reset-me -t {BEFORE} --force"),
    Scenario("expire all", f"topics expire-all-subscriptions {PLAIN} -t 1s --force"),
    Scenario("create-subscription", f"topics create-subscription {PLAIN} -s made -m earliest", repeats=True),
    Scenario("unsubscribe", f"topics unsubscribe {PLAIN} -s half", repeats=True),
    Scenario("create topic", "topics create public/default/made -m owner=me", repeats=True),
    Scenario("create partitions", "topics create-partitioned-topic public/default/made -p 4", repeats=True),
    Scenario(
        "create missed partitions",
        "topics create-missed-partitions acme/orders/parts",
        lost=("/managed-ledgers/acme/orders/persistent/parts-partition-2",),
    ),
    Scenario("update partitions", "topics update-partitioned-topic acme/orders/parts -p 8"),
    Scenario("create shadow", f"topics create-shadow-topic public/default/made -s {PLAIN}", repeats=True),
    Scenario("update-properties", f"topics update-properties {PLAIN} -p owner=me"),
    Scenario(
        "copy topic",
        f"topics copy {PLAIN} acme/orders/parts --from {{work}}/other",
        before=(
            "--store {work}/other store import standalone {source}",
            f"topics delete {PLAIN}",
            "topics delete-partitioned-topic acme/orders/parts",
        ),
    ),
    Scenario("terminate", f"topics terminate {PLAIN}"),
    Scenario("partitioned-terminate", "topics partitioned-terminate acme/orders/parts"),
    Scenario("trim-topic", f"topics trim-topic {PLAIN}", before=READ),
    Scenario("truncate", f"topics truncate {PLAIN}"),
    Scenario("delete", f"topics delete {PLAIN}", repeats=True),
    Scenario(
        "delete with policies", f"topics delete {PLAIN}", before=(f"topics set-message-ttl {PLAIN} -t 9",), repeats=True
    ),
    Scenario("delete partitioned", "topics delete-partitioned-topic acme/orders/parts", repeats=True),
    Scenario("scale coordinators", "transactions scale-transactionCoordinators -r 20", repeats=True),
    Scenario("delete schema", "schemas delete public/default/avro", repeats=True),
    Scenario("set-message-ttl", f"topics set-message-ttl {PLAIN} -t 100"),
    Scenario("dynamic setting", "brokers update-dynamic-config -c maxTenants -v 10"),
    Scenario("namespace", "namespaces create acme/new", repeats=True),
    Scenario("delete namespace", "namespaces delete acme/iot --force", repeats=True),
    Scenario("split bundle", "namespaces split-bundle acme/iot -b 0x00000000_0xffffffff", repeats=True),
    Scenario("ledger ids", f"managed-ledger delete-managed-ledger-ids -mlp {ML_PLAIN} -lid 9", repeats=True),
    Scenario("mark delete", f"managed-ledger update-mark-delete-cursor -mlp {ML_PLAIN} -cn half -cm 9:3"),
    Scenario("ledgers forget", *FORGET, repeats=True),
    Scenario("ledgers delete", "ledgers delete 17 20", repeats=True),
    Scenario(
        "ledgers restore",
        "ledgers restore 9",
        before=(
            f"managed-ledger delete-managed-ledger-ids -mlp {ML_PLAIN} -lid 9",
            "ledgers delete 9 --force",
            "store undo 1",
        ),
        repeats=True,
    ),
    Scenario("ledgers restore deleted", "ledgers restore --deleted 121 137", world="cluster"),
    Scenario("undelete", BACK[0], world="cluster"),
    Scenario("undelete copied", "topics undelete public/default/doomed --copy --in-place", world="cluster"),
    Scenario("restore at", "topics restore acme/secure/trimmed --at 2026-11-21T09:31:38.900Z", world="cluster"),
    Scenario("recover", "store recover --cluster standalone", lost=("/managed-ledgers", "/schemas", "/admin")),
    Scenario(
        "recover bookies alone",
        "store recover --level C",
        before=("store import cluster --bookie {source}/bookkeeper",),
        no_store=True,
    ),
    Scenario("rename bookie", "bookies rename bk0test bk9test", world="cluster"),
    Scenario("undo", "store undo 1", before=(SKIP,), repeats=True),
    Scenario(
        "bundle",
        "store bundle {work}/b --names {work}/names",
        before=("store bundle {work}/first --names {work}/names",),  # a salt that does not change
        target="b",
        new_target=True,
    ),
    Scenario("save plan", f"{SKIP} --plan {{work}}/skip.plan", target="skip.plan", new_target=True),
    Scenario("apply", "apply {work}/skip.plan", before=(f"{SKIP} --plan {{work}}/skip.plan",), repeats=True),
    Scenario("nacks add", NACKED),
    Scenario("nacks pop", "nacks due --pop --now 2027-01-01T00:00:00Z", before=(NACKED,), repeats=True),
    Scenario("dump", f"topics dump {PLAIN} --level entries --directory {{work}}/dump", target="dump", new_target=True),
    Scenario("load", WRITTEN[1], before=WRITTEN[:1], repeats=True),
    Scenario("delayed build", f"delayed build {DELAYED} -s workers"),
    Scenario("compaction run", f"compaction run {COMPACTED} --from-start", repeats=True),
    Scenario("compaction upgrade", f"compaction upgrade {COMPACTED}"),
    Scenario("export", "store export standalone {work}/out", before=EXPORTED, target="out", new_target=True),
    Scenario(
        "export in place",
        "store export standalone {work}/data --in-place --yes",
        before=EXPORTED,
        target="data",
        in_place=True,
    ),
    Scenario(
        "export snapshot",
        "store export zookeeper-snapshot {work}/out",
        before=EXPORTED[:1],
        target="out",
        new_target=True,
    ),
    Scenario("export zookeeper", "store export zookeeper {zookeeper} --yes", before=CHANGED, ensemble=True),
    Scenario(
        "export zookeeper of what came back",
        "store export zookeeper {zookeeper} --yes",
        before=BACK,
        ensemble=True,
        world="cluster",
    ),
    Scenario(
        "export zookeeper of what was forgotten",
        "store export zookeeper {zookeeper} --yes",
        before=FORGET,
        ensemble=True,
    ),
    Scenario(
        "export bookie", "store export bookie {work}/data/bookkeeper", before=EXPORTED, target="data", in_place=True
    ),
    Scenario(
        "reclaim",
        "store reclaim {work}/data/bookkeeper --metadata {work}/data/metadata --below 100 --yes",
        target="data",
        in_place=True,
        steps=True,
    ),
    Scenario(
        "salvage", "store salvage {work}/data/bookkeeper --yes", target="data", in_place=True, emptied_bookie=True
    ),
    Scenario("clone", "store clone {work}/out --boot-at /srv/clone", target="out", new_target=True),
)
