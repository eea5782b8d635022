"""`silt jobs`: what jobs did, when they run next, and what failed; has one run now, or stop."""

from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.output import grid, pairs, printable
from siltlog.cli.session import EXIT_FAILED, EXIT_FOUND_WRONG, Session, client_options, pass_session
from siltlog.infra.clock import SystemClock

if TYPE_CHECKING:
    from siltlog.infra.client.admin import Admin

RUN_COLUMNS = ("started", "job", "outcome", "seconds", "done", "by", "error")
NEXT_COLUMNS = ("job", "cron", "next", "last_success", "note")
EPILOG = """\b
Examples:
  silt jobs
  silt jobs --job compact --failed
  silt jobs run compact --wait
  silt jobs --output json | jq '.jobs[0]'"""
LOOKED_MAX = 10_000
LOOK_SECONDS = 0.5
NEWEST = 100
"""Runs of a job among which one is looked for that has just ended."""
FINE = ("succeeded", "interrupted")


@click.group(epilog=EPILOG, invoke_without_command=True)
@click.option("--job", "-j", metavar="NAME", help="Only this job, such as compact.")
@click.option("--failed", is_flag=True, help="Only runs that failed, or found something wrong.")
@click.option("--max-runs", "-n", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@client_options
@pass_session
@click.pass_context
def jobs(ctx: click.Context, session: Session, job: str | None, failed: bool, max_runs: int) -> None:
    """Show when jobs run next, and what their last runs did; run one now, or stop it. Times are UTC.

    Jobs run by the schedule of `silt serve` or `silt schedule`, or by hand; each tells the server what it did.
    """
    if ctx.invoked_subcommand is not None:
        return
    with session.admin() as admin:
        schedule = admin.schedule()
        runs = admin.jobs(job, LOOKED_MAX if failed else max(max_runs, 100))
        scheduled = [entry for entry in schedule["jobs"] if job in (None, entry["job"])]
        for entry in scheduled:
            entry["last_success_at"] = _last_success(runs, entry["job"]) or _last_success(
                admin.jobs(entry["job"]), entry["job"]
            )
    shown = [run for run in runs if not failed or run["outcome"] not in FINE][:max_runs]
    session.output.document(
        {"runner": schedule["runner"], "schedule": scheduled, "jobs": shown},
        value=[run["run_id"] for run in shown],
        tables=[
            grid(
                [_next_row(entry) for entry in scheduled],
                NEXT_COLUMNS,
                title=f"Schedule, run by {schedule['runner']}" if schedule["runner"] else "Schedule: nobody runs it",
            ),
            grid([_run_row(run) for run in shown], RUN_COLUMNS, title="\nRuns", numbers=("seconds",)),
        ],
    )


@jobs.command(epilog="Example:  silt jobs run compact --wait")
@click.argument("name")
@click.option(
    "--wait", is_flag=True, help="Return once it has ended; exit status 1 unless it succeeded, 3 if it found something."
)
@client_options
@pass_session
def run(session: Session, name: str, wait: bool) -> int:
    """Run a job of the schedule now: compact, retain, vacuum or audit. It runs where the schedule is run, as at its
    time, and not on this machine.
    """
    with session.admin() as admin:
        begun = admin.begin_job(name)
        if not wait:
            session.output.document(begun, value=[begun["run_id"]], tables=[pairs(begun)])
            return 0
        ended = _ended(admin, name, begun["run_id"])
    session.output.document(ended, value=[ended["run_id"]], tables=[grid([_run_row(ended)], RUN_COLUMNS)])
    if ended["outcome"] == "found_wrong":
        return EXIT_FOUND_WRONG
    return 0 if ended["outcome"] == "succeeded" else EXIT_FAILED


@jobs.command(epilog="Example:  silt jobs stop audit")
@click.argument("name")
@click.argument("run_id", required=False)
@client_options
@pass_session
def stop(session: Session, name: str, run_id: str | None) -> None:
    """Stop the run of a job of the schedule that is under way, or RUN_ID and no other. What it has committed stays, and
    it runs again at its next time.
    """
    with session.admin() as admin:
        stopped = admin.stop_job(name, run_id or _under_way(admin, name))
    session.output.document(stopped, value=[stopped["outcome"]], tables=[pairs(stopped)])


def _under_way(admin: "Admin", job: str) -> str:
    """The id of the run of a job that is under way."""
    for entry in admin.schedule()["jobs"]:
        if entry["job"] == job and entry["run_id"]:
            run_id: str = entry["run_id"]
            return run_id
    raise click.ClickException(f"no run of {job} is under way in the schedule; `silt jobs` shows those that ended")


def _ended(admin: "Admin", job: str, run_id: str) -> dict[str, Any]:
    """A run, once it has ended. One whose runner is gone is told of by the next."""
    clock = SystemClock()
    while True:
        # A job tells what it did just before its process ends, and is in the way of the next run until then.
        under_way = any(entry["run_id"] == run_id for entry in admin.schedule()["jobs"])
        found = next((each for each in admin.jobs(job, NEWEST) if each["run_id"] == run_id), None)
        if found is not None and not under_way:
            return found
        clock.sleep(LOOK_SECONDS)


def _last_success(runs: list[dict[str, Any]], job: str) -> str | None:
    ended = [
        run["ended_at"] for run in runs if run["job"] == job and run["outcome"] == "succeeded" and not run["dry_run"]
    ]
    return ended[0] if ended else None


def _next_row(entry: dict[str, Any]) -> dict[str, Any]:
    note = "running" if entry["running_since"] else entry["unavailable"]
    return {
        "job": entry["job"],
        "cron": entry["cron"],
        "next": _second(entry["next_at"]),
        "last_success": _second(entry["last_success_at"]),
        "note": note or "",
    }


def _run_row(run: dict[str, Any]) -> dict[str, Any]:
    done = ", ".join(f"{name.replace('_', ' ')} {printable(count)}" for name, count in run["done"].items())
    return {
        "started": _second(run["started_at"]),
        "job": run["job"],
        "outcome": run["outcome"] + (" (dry run)" if run["dry_run"] else ""),
        "seconds": round(_seconds(run["ended_at"]) - _seconds(run["started_at"]), 1),
        "done": done,
        "by": run["trigger"],
        "error": run["error"] or "",
    }


def _seconds(time: str) -> float:
    from siltlog.infra.clock import MICROS_PER_SECOND, parse_us

    return parse_us(time) / MICROS_PER_SECOND


def _second(time: str | None) -> str:
    """`2026-11-21 07:36:00`"""
    return "" if time is None else time[:19].replace("T", " ")
