"""`silt schedule`."""

import signal
from pathlib import Path

import click

from siltlog.cli.commands.jobs.pipelines import named_settings, place_options
from siltlog.cli.session import Session, needs, pass_session, url_option

LOOK_SECONDS = 0.2
EPILOG = """\b
Examples:
  silt schedule --root s3://bucket/prefix --url http://silt:7070
  SILT_SCHEDULE_VACUUM=off silt schedule"""


@click.command(epilog=EPILOG)
@place_options
@url_option
@pass_session
def schedule(session: Session, root: str | None, data_dir: Path | None) -> None:
    """Run the jobs at their times, until it is told to stop, for servers that have SILT_SCHEDULE=off.

    The times are cron expressions in [schedule] of siltlog.toml (`silt config show`). Of all schedules of a log, those
    of its servers included, one runs at a time, and another takes over from one that is gone.
    """
    settings = named_settings(root, data_dir)
    with needs("server", "silt schedule"):
        from siltlog.infra.clock import SystemClock
        from siltlog.infra.redaction import Redaction
        from siltlog.infra.telemetry import LogOutput, hear_others
        from siltlog.pipelines.schedule.opening import ScheduleThread, scheduler
        from siltlog.server.process import no_core_dumps
    if not settings.crons():
        raise click.UsageError(
            "every job of the schedule is off; give one a time, such as SILT_SCHEDULE_RETAIN='5 * * * *'"
        )
    no_core_dumps()
    hide = Redaction(settings.secret_values())
    output = LogOutput(settings.log_level, settings.log_format, hide, node=settings.node_id)
    hear_others(output)
    log = output.logger()
    runner = scheduler(settings, session.url, SystemClock(), log, credentials=session.credentials)
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: told.append(received))
    running = ScheduleThread(runner)
    running.start()
    while not told and not running.ended(LOOK_SECONDS):
        continue
    running.stop()
