"""``tenants``: list, get, create, update, delete."""

from typing import Any

from pulsar_admin.context import App, Printed, Shown
from pulsar_admin.store import errors
from pulsar_admin.upstream import mirrored

_HELPS = {
    "admin_roles": "Roles that administer the tenant, separated by commas.",
    "allowed_clusters": "Clusters that it may use, separated by commas.",
    "force": "Also its namespaces and their topics; a broker needs forceDeleteTenantAllowed for that.",
}
_SETS: Any = {"changes": True, "helps": _HELPS}  # Any: keywords of click


@mirrored("tenants list", "", output="Names, one per line.", errors=[errors.StoreNotFound])
def list_all(app: App) -> Shown:
    """List the tenants."""
    return Printed(app.resources.tenants())


@mirrored(
    "tenants get",
    "acme",
    output="The roles that administer it, and the clusters that it may use.",
    errors=[errors.NamespaceNotFound, errors.MetadataCorrupt],
)
def get(app: App, tenant: str) -> Shown:
    """Show the roles and clusters of a tenant."""
    return Printed(app.resources.tenant(tenant))


@mirrored(
    "tenants create",
    "shop --admin-roles shop-admin --allowed-clusters standalone --dry-run",
    errors=[errors.InvalidValue, errors.Refused, errors.AlreadyExists],
    **_SETS,
)
def create(app: App, tenant: str, admin_roles: tuple[str, ...], allowed_clusters: tuple[str, ...]) -> None:
    """Create a tenant; without clusters it may use all."""
    app.change(app.resources.create_tenant(tenant, admin_roles=admin_roles, allowed_clusters=allowed_clusters))


@mirrored(
    "tenants update",
    "acme --admin-roles acme-admin,ops --dry-run",
    errors=[errors.NamespaceNotFound, errors.InvalidValue, errors.Refused],
    **_SETS,
)
def update(app: App, tenant: str, admin_roles: tuple[str, ...], allowed_clusters: tuple[str, ...]) -> None:
    """Change the roles or the clusters of a tenant; options that are not given are kept."""
    app.change(app.resources.update_tenant(tenant, admin_roles=admin_roles, allowed_clusters=allowed_clusters))


@mirrored("tenants delete", elsewhere=["shop --dry-run"], errors=[errors.NamespaceNotFound, errors.Refused], **_SETS)
def delete(app: App, tenant: str, force: bool) -> None:
    """Delete a tenant that has no namespaces; with --force also its namespaces and their topics."""
    app.change(app.resources.delete_tenant(tenant, force=force))
