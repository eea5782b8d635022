"""What a node does with the store, step by step: each yields a call, and is sent what came of it.

So no state is touched on a thread, and a test decides what happens between any two calls.
"""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat, decode_beat
from siltlog.infra.cluster.view import FORMAT, ClusterView, decode_view, encode_view
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ObjectStore, Put

_Answer = TypeVar("_Answer")
Call = Callable[[ObjectStore], Any]
Steps = Generator[Call, Any, _Answer]

VIEWS_KEPT = 100
PUTS_MAX = 3
GETS_AT_ONCE = 16
GETS_IN_ROW = 4
"""How many objects are read one after another, as threads would cost more."""


def taken(store: ObjectStore, turn: Steps[_Answer]) -> _Answer:
    """Takes the steps of a turn one after the other, on this thread."""
    try:
        call = next(turn)
        while True:
            call = turn.send(call(store))
    except StopIteration as ended:
        result: _Answer = ended.value
        return result


def found(path: str) -> Call:
    """Reads the object; None where there is none."""

    def call(store: ObjectStore) -> bytes | None:
        with suppress(FileNotFoundError):
            return store.get(path)
        return None

    return call


def numbers(store: ObjectStore) -> list[int]:
    """The numbers of the views there are, rising."""
    return sorted(int(name) for name in _names(store, names.VIEWS_FOLDER) if name.isdecimal())


def _names(store: ObjectStore, folder: str) -> list[str]:
    return [info.path.removeprefix(f"{folder}/") for info in store.list(folder)]


def next_view(above: int, formats: int = FORMAT) -> Steps[ClusterView | None]:
    """Asks for the view after `above`; where there is one, the newest of all."""
    if (yield found(names.view_object(above + 1))) is None:
        return None
    return (yield from newest_view(above, formats))


def newest_view(above: int, formats: int = FORMAT) -> Steps[ClusterView | None]:
    """Lists; the newest view, if it is above that one. Raises ConfigError where its format is above `formats`."""
    while True:
        there = yield numbers
        if not there or there[-1] <= above:
            return None
        if (content := (yield found(names.view_object(there[-1])))) is not None:
            return decode_view(content, there[-1], formats)
        # Cleaned meanwhile: there are many above it.


def put_view(view: ClusterView) -> Steps[bool]:
    """Writes the view; whether it counts. One that a sleeper puts below those that were kept does not.

    Raises Unavailable where it is not known whether it was written; it may be found later on.
    """
    path, content = names.view_object(view.number), encode_view(view)
    for _ in range(PUTS_MAX):
        put = yield lambda store: store.put_if_absent(path, content)
        if put is not Put.WRITTEN and (there := (yield found(path))) != content:
            if there is not None:
                return False
            continue
        kept = yield numbers
        if kept and kept[-1] > view.number:
            return False
        for number in kept[:-VIEWS_KEPT]:
            yield partial(delete, names.view_object(number))
        return True
    raise problem("topic_unavailable", f"it is not known whether {path} was written")


def delete(path: str, store: ObjectStore) -> None:
    """Deletes the object if it can."""
    with suppress(SiltlogError):  # whoever writes the next view tries again
        store.delete(path)


def put_beat(beat: Beat, content: bytes) -> Steps[None]:
    yield lambda store: store.put(names.beat_object(beat.node), content)


def beats_of(nodes: Iterable[str], formats: int = FORMAT) -> Steps[dict[str, Beat]]:
    """The beats of those nodes that have one that can be read."""
    wanted = list(nodes)
    contents = yield partial(_contents, wanted)
    return dict(_readable(wanted, contents, formats))


def all_beats(formats: int = FORMAT) -> Steps[dict[str, Beat]]:
    """The beats of all nodes that ever were."""
    return (yield from beats_of((yield lambda store: _names(store, names.NODES_FOLDER)), formats))


def _contents(nodes: list[str], store: ObjectStore) -> list[bytes | None]:
    calls = [found(names.beat_object(node)) for node in nodes]
    if len(calls) <= GETS_IN_ROW:
        return [call(store) for call in calls]
    with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
        return list(pool.map(lambda call: call(store), calls))


def _readable(nodes: list[str], contents: list[bytes | None], formats: int) -> Iterable[tuple[str, Beat]]:
    for node, content in zip(nodes, contents, strict=True):
        if content is not None:
            with suppress(SiltlogError):  # it is written again, or its node counts as silent
                yield node, decode_beat(content, node, formats)
