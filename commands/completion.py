"""``completion``."""

import click

from pulsar_admin.completing import SHELLS, script
from pulsar_admin.context import App, Result
from pulsar_admin.options import command
from pulsar_admin.store.errors import InvalidValue


@command(
    "completion",
    examples=["bash"],
    elsewhere=["zsh > ~/.zfunc/_pulsar-admin"],
    output='The script for the shell to read: `eval "$(pulsar-admin completion bash)"`.',
    errors=[InvalidValue],
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(app: App, shell: str) -> Result:
    """Print the script that completes commands, options and names in a shell.

    Topics, subscriptions, namespaces, tenants and ledgers are completed from the store that the command line or the
    settings name. A topic is completed in steps: tenant, namespace, name.
    """
    return Result(script(shell, click.get_current_context().find_root().info_name or "pulsar-admin").strip())
