"""The end of the demo on three nodes: what happened, whether it holds, what to type next."""

import shlex
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from siltlog.demo.cluster.result import ClusterResult, Loss
from siltlog.demo.summary import check_lines, next_lines, section, shown
from siltlog.infra import names

QUERY = "select string(key) as carrier, count(*) as flights from `{topic}` group by 1 order by 2 desc"


def summary(result: ClusterResult) -> Group:
    """The whole of it, to be printed."""
    parts: list[RenderableType] = [
        "",
        Text.from_markup(f"[bold]Siltlog demo[/]  {result.records:,} flights, three nodes, {result.seconds:.0f} s"),
        *section("The log", _log_lines(result)),
    ]
    for loss, waits in zip(result.losses, result.waits_s, strict=True):
        parts += section(f"The {loss.was}, killed, and its disk removed", _loss_lines(loss, waits))
    parts += section("The nodes", _node_lines(result))
    parts += [*section("Checks", check_lines(result.checks)), *_next_steps(result)]
    return Group(*parts)


def _log_lines(result: ClusterResult) -> Iterator[tuple[str, str]]:
    equal = "[green]=[/]" if result.acknowledged == result.read == result.rows else "[red]≠[/]"
    yield (
        "records",
        (
            f"[bold]{result.acknowledged:,}[/] acknowledged {equal} [bold]{result.read:,}[/] read {equal} "
            f"[bold]{result.rows:,}[/] in the tables"
        ),
    )
    readers = ", ".join(f"{member} {count:,}" for member, count in sorted(result.members.items()))
    again = f"; {result.repeated:,} delivered again" if result.repeated else "; none delivered twice"
    yield "a group of three", f"{readers}{again}"
    ack = result.ack_ms
    yield (
        "acknowledged in",
        (
            f"p50 [bold]{ack.p50:.1f} ms[/]  p99 [bold]{ack.p99:.1f} ms[/]  "
            f"(on a disk and in the object store; {ack.count:,} published one at a time)"
        ),
    )


def _loss_lines(loss: Loss, waits: dict[str, float]) -> Iterator[tuple[str, str]]:
    owned = f"the owner of {', '.join(loss.owned)}" if loss.owned else "the owner of nothing"
    yield (
        "SIGKILL, rm -r",
        (
            f"{loss.node}, {owned}, after {loss.acknowledged:,} acknowledged records, with {loss.unanswered:,} on "
            "their way or waiting"
        ),
    )
    parts = [f"{topic} by [bold]{node}[/]" for topic, node in loss.taken_by.items()]
    if loss.was == "controller":
        parts.append(f"the controller is [bold]{loss.controller}[/]")
    yield "taken over", ", ".join(parts)
    struck = max((waits[topic] for topic in loss.owned), default=0.0)
    spared = max((wait for topic, wait in waits.items() if topic not in loss.owned), default=0.0)
    yield (
        "nobody could publish",
        f"[bold]{struck:.2f} s[/] there at most; {spared:.2f} s to the other topics",
    )


def _node_lines(result: ClusterResult) -> Iterator[tuple[str, str]]:
    for node, topics in result.owners.items():
        back = ", back on an empty disk" if node in result.replaced else ""
        yield node, f"owns {', '.join(sorted(topics)) or 'nothing'}{back}"
    if result.replaced:
        yield "new machines", f"members [bold]{result.replaced_s:.1f} s[/] after their start"


def _next_steps(result: ClusterResult) -> list[RenderableType]:
    root = result.data_dir / names.LAKE_FOLDER
    lake = shown(root)
    topic = next(iter(result.topics))
    return next_lines(
        f"SILT_ROOT={shlex.quote(root.as_uri())} silt query '{QUERY.format(topic=topic)}'",
        f"{lake}/topics/   has a Delta table a topic: open them with Spark, DuckDB, Polars or Trino",
        "docs/cluster.md   starts such nodes on machines of your own",
    )
