"""Where a policy is stored in the JSON of ``Policies`` or the fields of ``TopicPolicies``; writing it changes no other member."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

Json = dict[str, Any]  # Any: JSON values
Options = Mapping[str, Any]  # Any: a command's values, named as ``pulsar_admin.upstream_list.name_of`` names options


class Place(Struct, frozen=True):
    """Where one policy is stored; ``key`` is its member of the policies."""

    key: str

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the policies that ``write`` may change."""
        return (self.key,)

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        """Return the policy's value in the policies ``found``, None if it is not set."""
        raise AssertionError

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        """Return a copy of the policies ``found`` with the policy set to ``value``, or removed if that is None."""
        raise AssertionError


class Member(Place, frozen=True):
    """A policy that is one member.

    ``empty``: the value that upstream leaves when it removes the policy; None: no member.
    """

    empty: Any = None

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        return found.get(self.key)

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        return put(found, self.key, self.empty if value is None else value)


class PerCluster(Place, frozen=True):
    """A policy in a map by cluster name. ``older``: a second member with the same map, which older clients read."""

    older: str | None = None

    @property
    def members(self) -> tuple[str, ...]:
        return (self.key, self.older) if self.older else (self.key,)

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        return (found.get(self.key) or {}).get(cluster)

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        for member in self.members:
            found = {**found, member: put(found.get(member) or {}, cluster, value)}
        return found


class Entry(Place, frozen=True):
    """A map of which ``write`` changes one entry, whose key is the value of ``option``; ``read`` returns the whole map."""

    option: str

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        return {key: value for key, value in (found.get(self.key) or {}).items() if value is not None}

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        return {**found, self.key: put(found.get(self.key) or {}, options[self.option], value)}


class OfSubscription(Place, frozen=True):
    """A member that a subscription may override with the member ``inner`` in ``subscriptionPolicies``."""

    inner: str

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        name = options.get("subscription")
        own = (found.get("subscriptionPolicies") or {}).get(name) or {}
        value = own.get(self.inner) if name else found.get(self.key)
        return found.get(self.key) if value is None and options.get("applied") else value

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        name = options.get("subscription")
        if not name:
            return put(found, self.key, value)
        kept = found.get("subscriptionPolicies") or {}
        own = put(kept.get(name) or {}, self.inner, value)
        return {**found, "subscriptionPolicies": put(kept, name, own or None)}


class Inner(Place, frozen=True):
    """A policy that is the members ``inner`` of an object. ``template``: the object to create if it does not exist."""

    template: Json = field(default_factory=dict)
    inner: Sequence[str] = ()

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        held = found.get(self.key) or {}
        value = {key: held[key] for key in self.inner if held.get(key) is not None}
        return value or None

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        held = dict(found.get(self.key) or self.template)
        for key in self.inner:
            held = put(held, key, (value or {}).get(key))
        return {**found, self.key: held}


class Parts(Place, frozen=True):
    """A policy whose value is one object, stored as several members that are set and removed together.

    ``parts``: key of the object → member of the policies. The policy is set if the member ``key`` is.
    """

    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.parts.values())

    def read(self, found: Json, cluster: str, options: Options) -> Any:
        if found.get(self.key) is None:
            return None
        return {
            name: found.get(member) or 0 if member != self.key else found[member] for name, member in self.parts.items()
        }

    def write(self, found: Json, value: Any, cluster: str, options: Options) -> Json:
        for name, member in self.parts.items():
            found = put(found, member, None if value is None else value.get(name))
        return found


def put(found: Mapping[str, Any], key: str, value: Any) -> Json:
    """Return a copy of ``found`` with ``value`` under ``key``, in the same order; None removes the key."""
    changed = dict(found)
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed
