"""`silt compact`, `silt vacuum`, `silt query`: the jobs that work on tables, with no server between."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from siltlog.cli.output import grid, progress
from siltlog.cli.server_options import ServerCommand, take_settings
from siltlog.cli.session import EXIT_FAILED, Session, needs, output_option, pass_session

F = TypeVar("F", bound=Callable[..., Any])
