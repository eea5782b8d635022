"""Folders for temporary files, and the error where there is no space for them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.private_folder import private_folder
from siltlog.infra.store.disk_space import ERRNOS, says_full


@contextmanager
def scratch_folder(kind: str) -> Iterator[Path]:
    """A folder for temporary files, removed at the end of the block; what killed processes of this user left of that
    `kind` is removed at its beginning. Raises Unavailable `disk_full`, also for what the block finds no space for."""
    try:
        with private_folder(kind, tempfile.gettempdir()) as folder:
            yield folder
    except SiltlogError:
        raise
    except Exception as error:
        # Arrow and deltalake say it in their own words.
        if says_full(str(error)) or getattr(error, "errno", None) in ERRNOS:
            raise problem(
                "disk_full",
                f"no space is left for temporary files in {tempfile.gettempdir()}; free space on its disk, or name "
                "another folder in TMPDIR",
            ) from error
        raise
