"""File descriptors: every connection is one, and so is every segment of the log."""

import resource

RESERVE = 256
"""For data files, the object store, Redis, libraries."""


def raise_file_limit() -> int:
    """Raises the process's soft limit of open files to the hard one; how many may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # macOS has a lower bound of its own below an unlimited hard limit.
            return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def connections_within(files_max: int, connections_max: int, *, segments: int) -> int:
    """How many connections may be open so that everything else still gets its descriptors; at least one."""
    return max(min(connections_max, files_max - RESERVE - segments), 1)
