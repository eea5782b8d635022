"""Archives of source, as they are unpacked by every Python that the project runs on."""

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Puts what an archive has into a folder.

    Members that would lie outside are refused from Python 3.11.4 on, the first of 3.11 that knows how (PEP 706): older
    ones have no argument for it. The archives are the project's own.
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)
