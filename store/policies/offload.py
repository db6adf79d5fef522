"""The offload policies: making them from a command's options, and refusing what upstream refuses, with its messages.

Upstream (Pulsar 4.0.8): ``OffloadPoliciesImpl``; ``CmdNamespaces``, ``CmdTopics``, ``CmdTopicPolicies``.
"""

from typing import Any

from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.policies.places import Json, Options
from pulsar_admin.store.policies.rules import NAMESPACES, TOPIC_POLICIES, Scope, seconds_of

DRIVERS = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
OFFLOAD: Json = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadDriver": None,
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerOffloadThresholdInSeconds": None,
    "managedLedgerOffloadThresholdInBytes": None,
    "managedLedgerOffloadDeletionLagInMillis": None,
    "managedLedgerOffloadedReadPriority": None,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadRegion": None,
    "s3ManagedLedgerOffloadBucket": None,
    "s3ManagedLedgerOffloadServiceEndpoint": None,
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 << 20,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "s3ManagedLedgerOffloadCredentialId": None,
    "s3ManagedLedgerOffloadCredentialSecret": None,
    "s3ManagedLedgerOffloadRole": None,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadRegion": None,
    "gcsManagedLedgerOffloadBucket": None,
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 << 20,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1 << 20,
    "gcsManagedLedgerOffloadServiceAccountKeyFile": None,
    "fileSystemProfilePath": None,
    "fileSystemURI": None,
    "managedLedgerOffloadBucket": None,
    "managedLedgerOffloadRegion": None,
    "managedLedgerOffloadServiceEndpoint": None,
    "managedLedgerOffloadMaxBlockSizeInBytes": None,
    "managedLedgerOffloadReadBufferSizeInBytes": None,
}
"""The default values of ``OffloadPoliciesImpl``, in the order in which Jackson writes its fields; None is left out."""
KINDS = {
    key: dict
    if key.endswith("Configurations")
    else int
    if key.endswith(("Threads", "Rounds", "InBytes", "InSeconds", "InMillis"))
    else str
    for key in OFFLOAD
} | dict.fromkeys(("s3Driver", "gcsDriver", "fileSystemDriver"), bool)
"""The types of the fields of ``OffloadPoliciesImpl``, and of the getters that Jackson writes as fields."""
NO_OFFLOAD = {key: value for key, value in OFFLOAD.items() if value is not None}


def offload(group: str, options: Options) -> Json:
    """Return the policies that ``OffloadPoliciesImpl.create`` makes of the options; raises InvalidValue."""
    driver, region, endpoint = options["driver"], options["region"], options["endpoint"]
    if driver.lower() not in [name.lower() for name in DRIVERS]:
        raise InvalidValue(f"The driver {driver} is not supported, (Possible values: {','.join(DRIVERS)}).")
    if _is_s3(driver) and not region and not endpoint:
        raise InvalidValue(
            "Either s3ManagedLedgerOffloadRegion or s3ManagedLedgerOffloadServiceEndpoint must be set if s3 offload enabled"
        )
    value = NO_OFFLOAD | {"managedLedgerOffloadDriver": driver} | _thresholds(group, options)
    shared = {
        "Region": region,
        "Bucket": options["bucket"],
        "ServiceEndpoint": endpoint,
        "MaxBlockSizeInBytes": _given(options, "max_block_size", "max_block_size_in_bytes"),
        "ReadBufferSizeInBytes": _given(options, "read_buffer_size", "read_buffer_size_in_bytes"),
    }
    own = {"CredentialId": options["aws_id"], "CredentialSecret": options["aws_secret"], "Role": options["s3_role"]}
    own["RoleSessionName"] = options["s3_role_session_name"] or OFFLOAD["s3ManagedLedgerOffloadRoleSessionName"]
    value |= {f"managedLedgerOffload{name}": part for name, part in shared.items()}
    if _is_s3(driver):
        value |= {f"s3ManagedLedgerOffload{name}": part for name, part in {**shared, **own}.items()}
    if driver.lower() == DRIVERS[2]:
        del shared["ServiceEndpoint"]
        value |= {f"gcsManagedLedgerOffload{name}": part for name, part in shared.items()}
    value = {key: value[key] for key in OFFLOAD if value.get(key) is not None}
    return value | _kinds(value) if group == NAMESPACES else value


def _given(options: Options, *names: str) -> Any:
    return next((options[name] for name in names if name in options), None)


def _thresholds(group: str, options: Options) -> Json:
    priority = options["offloaded_read_priority"]
    known = {"bookkeeper-first": "BOOKKEEPER_FIRST", "tiered-storage-first": "TIERED_STORAGE_FIRST"}
    if priority not in (None, *known):
        raise InvalidValue(f"--offloadedReadPriority parameter must be one of {','.join(known)} but got: {priority}")
    age = _given(options, "offload_after_threshold_in_seconds", "offload_threshold_in_seconds")
    size = _given(options, "offload_after_threshold", "offload_threshold_in_bytes")
    lag = _given(options, "offload_after_elapsed", "offload_deletion_lag_in_millis")
    if group != TOPIC_POLICIES and age is not None:
        age = seconds_of(age)
    return {
        "managedLedgerOffloadThresholdInSeconds": age,
        "managedLedgerOffloadThresholdInBytes": size,
        "managedLedgerOffloadDeletionLagInMillis": lag,
        "managedLedgerOffloadedReadPriority": None if priority is None else known[priority],
    }


def _is_s3(driver: str | None) -> bool:
    return (driver or "").lower() in ("s3", "aws-s3")


def _kinds(value: Json) -> Json:
    driver = (value.get("managedLedgerOffloadDriver") or "").lower()
    return {"s3Driver": _is_s3(driver), "gcsDriver": driver == DRIVERS[2], "fileSystemDriver": driver == DRIVERS[3]}


def offload_answer(value: Json | None) -> Json | None:
    """Return offload policies as upstream prints them: in its order of fields, with booleans for the kind of driver."""
    if value is None:
        return None
    answer = {key: value[key] for key in OFFLOAD if value.get(key) is not None}
    return answer | _kinds(answer)


def offload_lag(group: str, options: Options) -> Json:
    """Return the member of the offload policies that ``set-offload-deletion-lag`` sets."""
    return {"managedLedgerOffloadDeletionLagInMillis": options["lag"]}


def offload_threshold(group: str, options: Options) -> Json:
    """Return the members of the offload policies that ``set-offload-threshold`` sets."""
    size, age = options["size"], seconds_of(options["time"])
    return {"managedLedgerOffloadThresholdInBytes": size, "managedLedgerOffloadThresholdInSeconds": age}


def lag_answer(value: Json | None) -> str:
    """Return the deletion lag as upstream prints it."""
    if value is None:
        return "Unset for namespace. Defaulting to broker setting."
    return f"{int(value['managedLedgerOffloadDeletionLagInMillis'] / 60_000)} minute(s)"


def threshold_answer(value: Json | None) -> str:
    """Return the thresholds as upstream prints them; −1 for one that is not set."""
    given = value or {}
    names = ("ThresholdInBytes", "ThresholdInSeconds")
    return "\n".join(f"offload{name}: {given.get(f'managedLedgerOffload{name}', -1)}" for name in names)


def check_offload(scope: Scope, value: Json, options: Options) -> None:
    """Raise InvalidValue without a bucket (``OffloadPoliciesImpl.bucketValid``), and in ``topicPolicies`` for sizes
    below 1."""
    for size in ("MaxBlockSizeInBytes", "ReadBufferSizeInBytes") if scope.group == TOPIC_POLICIES else ():
        if value.get(f"managedLedgerOffload{size}", 1) <= 0:
            raise InvalidValue(f"{size[0].lower()}{size[1:]} cannot be less than or equal to 0!")
    if not value.get("managedLedgerOffloadBucket") and not _kinds(value)["fileSystemDriver"]:
        raise InvalidValue("The bucket must be specified for namespace offload.", hint="name it with --bucket")
