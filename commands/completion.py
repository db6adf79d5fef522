"""``completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from pulsar_admin.config import completion_instruction
from pulsar_admin.context import App
from pulsar_admin.options import command, pass_app
from store.errors import MissingComponent


@command(
    "completion",
    examples=["pulsar-admin completion bash"],
    elsewhere=["pulsar-admin completion zsh > ~/.zfunc/_pulsar-admin"],
    output='The script for the shell to read: `eval "$(pulsar-admin completion bash)"`.',
    errors=[MissingComponent],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_app
def completion(app: App, shell: str) -> None:
    """Print the script that completes commands and options in a shell."""
    ctx = click.get_current_context()
    program = ctx.find_root().info_name or "pulsar-admin"
    kind = get_completion_class(shell)
    if kind is None:
        raise MissingComponent(f"this click knows no completion for {shell}", hint="bash, zsh and fish are built in")
    variable, _ = completion_instruction(program)
    app.emit(kind(ctx.find_root().command, {}, program, variable).source().strip())
