"""What the server's process does with memory that was freed: it keeps it for the next request.

Both allocators give large blocks back to the system soon, and ask for new ones a moment later: pages that the kernel
has to clear, and on a virtual machine often to fetch. Kept, 12 million records in Arrow bodies caused a sixth fewer
page faults and took a twentieth less processor time (one pair of runs on a busy machine).
"""

import ctypes
import os

MIB = 1024 * 1024
PURGE_DELAY_MS = 1000
TRIM_BYTES = 128 * MIB
MMAP_BYTES = 32 * MIB
"""The most that glibc takes."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """To be called before pyarrow is imported: its allocator reads its settings once. Never fails."""
    os.putenv("MIMALLOC_PURGE_DELAY", str(PURGE_DELAY_MS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
