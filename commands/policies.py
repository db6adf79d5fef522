"""What the policy commands of topics and namespaces share: the options of pulsar-admin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from pulsar_admin.options import DURATION, DURATION_OR_MINUS, SIZE_OR_MINUS, gather
from store.changes.namespaces import QUOTA_POLICIES, QUOTA_TYPES, delivery_of, retention_of, with_quota
from store.codec.policies import (
    DelayedDelivery,
    Policies,
    Retention,
)
from store.errors import InvalidValue

Function = TypeVar("Function", bound=Callable[..., Any])  # Any: click calls commands with whatever was declared


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Options of ``set-delayed-delivery``."""

    enable: bool
    disable: bool
    time_ms: int
    max_delay_ms: int

    def parsed(self) -> DelayedDelivery:
        """Return the policy; raises InvalidValue for both or neither of --enable and --disable, or times out of range."""
        if self.enable == self.disable:
            raise InvalidValue("Need to specify either --enable or --disable")
        return delivery_of(self.enable, self.time_ms, self.max_delay_ms)


def delivery_options(function: Function) -> Function:
    """Add the options of ``set-delayed-delivery``, handed over as ``options: DeliveryOptions``."""
    decorated: Any = gather(DeliveryOptions)(function)
    text = "Longest delay; 0: any."
    decorated = click.option("-md", "--maxDelay", "max_delay_ms", type=DURATION, default="0", help=text)(decorated)
    decorated = click.option(
        "-t", "--time", "time_ms", type=DURATION, default="1s", show_default=True, help="The tick."
    )(decorated)
    decorated = click.option("-d", "--disable", is_flag=True, help="Deliver everything at once.")(decorated)
    return click.option("-e", "--enable", is_flag=True, help="Delay messages.")(decorated)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """Options of ``set-retention``."""

    time_ms: int
    size_bytes: int

    def parsed(self) -> Retention:
        """Return the policy in upstream's units, rounded down as upstream does; raises InvalidValue out of range."""
        return retention_of(self.time_ms, self.size_bytes)


def retention_options(function: Function) -> Function:
    """Add the options of ``set-retention``, handed over as ``options: RetentionOptions``."""
    decorated: Any = gather(RetentionOptions)(function)
    text = "Keep this much: 10M, 16G, 3T; -1: all, below 1M: none."
    decorated = click.option("-s", "--size", "size_bytes", type=SIZE_OR_MINUS, required=True, help=text)(decorated)
    text = "Keep this long: 100m, 3h, 2d, 5w, or seconds; -1: for ever, below a minute: not at all."
    decorated = click.option("-t", "--time", "time_ms", type=DURATION_OR_MINUS, required=True, help=text)(decorated)
    return decorated  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """Options of ``set-backlog-quota``."""

    limit_bytes: int
    limit_time_ms: int
    policy: str
    kind: str

    def change(self, policies: Policies) -> Policies:
        """Return POLICIES with this quota; raises InvalidValue for a time out of range."""
        return with_quota(policies, self.kind, self.limit_bytes, self.limit_time_ms, self.policy)


def quota_options(function: Function) -> Function:
    """Add the options of ``set-backlog-quota``, handed over as ``options: QuotaOptions``."""
    decorated: Any = quota_type_option(gather(QuotaOptions)(function))
    text = "What happens beyond it."
    decorated = click.option("-p", "--policy", type=click.Choice(QUOTA_POLICIES), required=True, help=text)(decorated)
    text = "Longest age of the backlog: 100m, 3h, 2d, 5w, or seconds; -1: any."
    decorated = click.option("-lt", "--limitTime", "limit_time_ms", type=DURATION_OR_MINUS, default="-1", help=text)(
        decorated
    )
    text = "Largest size of the backlog: 10M, 16G; -1: any."
    decorated = click.option("-l", "--limit", "limit_bytes", type=SIZE_OR_MINUS, default="-1", help=text)(decorated)
    return decorated  # type: ignore[no-any-return]


def quota_type_option(function: Function) -> Function:
    """Add ``-t/--type``, handed over as ``kind: str``."""
    return click.option(
        "-t",
        "--type",
        "kind",
        type=click.Choice(QUOTA_TYPES),
        default=QUOTA_TYPES[0],
        show_default=True,
        help="Which quota: of size, or of age.",
    )(function)
