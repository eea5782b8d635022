"""`python -m siltlog.pipelines.setup`: makes sure of the jars and the archive of classes, says where they are."""

import sys

import click

from siltlog.infra.errors import SiltlogError
from siltlog.pipelines.setup.class_archive import find_class_archive, make_class_archive
from siltlog.pipelines.spark.jars import DELTA, S3A, jars_of, resolve


def main() -> int:
    try:
        for jar_set in (DELTA, S3A):
            if jars_of(jar_set) is None:
                click.echo(f"downloading the {jar_set.name} jars for Spark (once)", err=True)
            jars = resolve(jar_set)
            size_mb = sum(jar.stat().st_size for jar in jars) / 1e6
            click.echo(f"{jar_set.name}: {len(jars)} jars, {size_mb:.0f} MB in {jars[0].parent}")
        if not find_class_archive().exists():
            click.echo("running each Spark job once on a small topic, so that it starts faster (once)", err=True)
            make_class_archive()
        click.echo(f"classes: {find_class_archive()}")
    except SiltlogError as error:
        click.echo(str(error), err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
