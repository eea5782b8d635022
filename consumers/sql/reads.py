"""The files that a query may read, by number: nothing else of the store can be asked for."""

import threading
from collections import OrderedDict

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, damage_named

OPEN_MAX = 64
"""Files that are open at once."""


class TableReads:
    """Used on several threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: list[tuple[str, DataFile]] = []
        self._open: OrderedDict[int, pa.NativeFile] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0
        self.failure: SiltlogError | None = None
        """Why a file could not be read, the first that could not."""

    def add(self, topic: str, file: DataFile) -> int:
        """Lets a file be read, and gives its number."""
        self._files.append((topic, file))
        return len(self._files) - 1

    def read(self, number: int, start: int, size: int) -> pa.Buffer:
        """The bytes [start, start + size), or as many as there are. Raises what reading the file does."""
        try:
            if not 0 <= number < len(self._files):
                raise problem("invalid_request", "the query asks for a file that is none of its topics")
            topic, file = self._files[number]
            with damage_named(topic, file):
                content = pa.py_buffer(self._opened(number, topic, file).read_at(size, start))
        except SiltlogError as error:
            with self._lock:
                self.failure = self.failure or error
            raise
        with self._lock:
            self.nbytes += content.size
        return content

    def _opened(self, number: int, topic: str, file: DataFile) -> pa.NativeFile:
        with self._lock:
            found = self._open.pop(number, None)
        if found is None:
            found = self._store.open(f"{names.topic_path(topic)}/{file.path}")
        with self._lock:
            # Two threads may have opened it; who reads by what is let go of here still does.
            self._open[number] = found
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
        return found
