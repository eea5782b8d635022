"""`make release`: the distributions of this commit, their sums, bills of materials and notes, in dist/."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from release.bill import LOCKS, NoTool, bill, differences
from release.checklist import missing, notes, version_of
from release.distribution import SUMS, NotAlike, built_twice, sums
from release.licences import allowed, licences

TOP = Path(__file__).parents[1]
NOTES = "NOTES.md"


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), default=TOP / "dist", help="Where what is made is put.")
@click.option(
    "--rehearse", is_flag=True, help="Make all of it, also where the checklist says that it is no release yet."
)
def main(folder: Path, rehearse: bool) -> None:
    """Makes a release of the commit that is checked out; nothing is sent anywhere."""
    lacking = missing(TOP)
    for sentence in lacking:
        click.echo(f"{'not yet' if rehearse else 'missing'}: {sentence}", err=True)
    if lacking and not rehearse:
        sys.exit(1)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.ClickException(f"{folder} is not empty: what is in it might be taken for part of this release")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            made = built_twice(TOP, Path(scratch))
        made |= _bills(folder)
    except (NotAlike, NoTool) as error:
        raise click.ClickException(str(error)) from None
    version = version_of(TOP)
    made[NOTES] = (notes((TOP / "CHANGELOG.md").read_text("utf-8"), version) + "\n").encode()
    for name, content in made.items():
        (folder / name).write_bytes(content)
    (folder / SUMS).write_text(sums(made), "utf-8")
    click.echo(f"{version} is in {folder}: {', '.join(sorted(made))}")


def _bills(folder: Path) -> dict[str, bytes]:
    made = {}
    time_s = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=TOP, check=True, capture_output=True, text=True)
    for name, lock in LOCKS.items():
        document = bill(TOP, lock, time_s.stdout.strip())
        found = differences(document, (TOP / lock).read_text("utf-8"))
        known = licences(component["name"] for component in document["components"])
        found += [
            f"{package} is under {known[package] or 'no licence'}" for package in known if not allowed(known[package])
        ]
        if found:
            raise NotAlike(f"{lock}: {'; '.join(found)}")
        made[f"siltlog-{version_of(TOP)}.{name}.cdx.json"] = (
            json.dumps(document, indent=1, sort_keys=True) + "\n"
        ).encode()
    return made


if __name__ == "__main__":
    main()
