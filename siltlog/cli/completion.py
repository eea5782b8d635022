"""`silt completion`."""

import click
from click.shell_completion import get_completion_class

from siltlog.cli.output import emit
from siltlog.cli.session import Session, output_option, pass_session

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "silt"
VARIABLE = "_SILT_COMPLETE"
"""The variable that the shell sets when it asks; click reads it."""
EPILOG = """\b
Examples:
  eval "$(silt completion bash)"                                   in ~/.bashrc
  eval "$(silt completion zsh)"                                    in ~/.zshrc
  silt completion fish > ~/.config/fish/completions/silt.fish"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@output_option
@pass_session
def completion(session: Session, shell: str) -> None:
    """Print what makes a shell complete commands, options and their values."""
    from siltlog.cli.main import silt

    made = get_completion_class(shell)
    assert made is not None
    script = made(silt, {}, PROGRAM, VARIABLE).source()
    if session.format == "json":
        session.output.document({"shell": shell, "script": script})
    else:
        emit(script)
