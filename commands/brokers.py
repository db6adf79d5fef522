"""``brokers``: dynamic settings; upstream's other commands of the group need a running broker."""

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.store.errors import InvalidValue, MetadataCorrupt, Refused, StoreNotFound
from pulsar_admin.upstream import mirrored

_HELPS = {"config": "Name of the setting.", "value": "The new value."}
_SETS: Any = {
    "changes": True,
    "helps": _HELPS,
    "errors": [Refused, InvalidValue],
}  # Any: keywords of click


@mirrored(
    "brokers list-dynamic-config", "", output="Names, one per line: those of Pulsar 4.0.8.", errors=[StoreNotFound]
)
def list_dynamic_config(app: App) -> Shown:
    """List the settings that may change while brokers run."""
    return Printed(app.resources.dynamic_setting_names())


@mirrored("brokers get-all-dynamic-config", elsewhere=[""], errors=[MetadataCorrupt])
def get_all_dynamic_config(app: App) -> Shown:
    """Show the dynamic settings that were changed."""
    return Printed(app.resources.dynamic_settings(), as_map=str)


@mirrored("brokers update-dynamic-config", "-c maxTenants -v 10 --dry-run", **_SETS)
def update_dynamic_config(app: App, config: str, value: str) -> None:
    """Set a dynamic setting of all brokers."""
    app.change(app.resources.set_dynamic_setting(config, value))


@mirrored("brokers delete-dynamic-config", "-c maxTenants --dry-run", **_SETS)
def delete_dynamic_config(app: App, config: str) -> None:
    """Remove a dynamic setting: each broker's configuration file applies again."""
    app.change(app.resources.delete_dynamic_setting(config))
