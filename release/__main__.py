"""`make release`: the distributions of this commit, their sums, bills of materials and notes, in dist/."""

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from release.bill import LOCKS, NoTool, bill, differences, written
from release.checklist import missing, notes, version_of
from release.codec import codec_built_twice
from release.crates import NotAllowed
from release.distribution import SUMS, NotAlike, built_twice, sums, time_of
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
            made = built_twice(TOP, Path(scratch) / "siltlog") | codec_built_twice(TOP, Path(scratch) / "codec")
        made |= _bills()
    except (NotAlike, NotAllowed, NoTool) as error:
        raise click.ClickException(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error}\n{_text(error.stderr)}") from None
    version = version_of(TOP)
    made[NOTES] = (notes((TOP / "CHANGELOG.md").read_text("utf-8"), version) + "\n").encode()
    for name, content in made.items():
        (folder / name).write_bytes(content)
    (folder / SUMS).write_text(sums(made), "utf-8")
    click.echo(f"{version} is in {folder}: {', '.join(sorted(made))}")


def _text(said: bytes | str) -> str:
    return said if isinstance(said, str) else said.decode("utf-8", "replace")


def _bills() -> dict[str, bytes]:
    made = {}
    time_s = time_of(TOP, "HEAD")
    for name, lock in LOCKS.items():
        document = bill(TOP, lock, time_s)
        found = differences(document, (TOP / lock).read_text("utf-8"))
        known = licences(component["name"] for component in document["components"])
        found += [
            f"{package} is under {known[package] or 'no licence'}" for package in known if not allowed(known[package])
        ]
        if found:
            raise NotAlike(f"{lock}: {'; '.join(found)}")
        made[f"siltlog-{version_of(TOP)}.{name}.cdx.json"] = written(document)
    return made


if __name__ == "__main__":
    main()
