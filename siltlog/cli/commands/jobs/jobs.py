"""`silt jobs`: what jobs did, when they run next, and what failed."""

from typing import Any

import click

from siltlog.cli.output import grid, printable
from siltlog.cli.session import Session, client_options, pass_session

RUN_COLUMNS = ("started", "job", "outcome", "seconds", "done", "by", "error")
NEXT_COLUMNS = ("job", "cron", "next", "last_success", "note")
EPILOG = """\b
Examples:
  silt jobs
  silt jobs --job compact --failed
  silt jobs --output json | jq '.jobs[0]'"""
LOOKED_MAX = 10_000
FINE = ("succeeded", "interrupted")


@click.command(epilog=EPILOG)
@click.option("--job", "-j", metavar="NAME", help="Only this job, such as compact.")
@click.option("--failed", is_flag=True, help="Only runs that failed, or found something wrong.")
@click.option("--max-runs", "-n", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@client_options
@pass_session
def jobs(session: Session, job: str | None, failed: bool, max_runs: int) -> None:
    """Show when jobs run next, and what their last runs did. Times are UTC.

    Jobs run by the schedule of `silt serve` or `silt schedule`, or by hand; each tells the server what it did.
    """
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
