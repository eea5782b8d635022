"""Help for tests of producers, consumers and handlers: a log in memory, or a real server as a child process."""

from siltlog.testing.running import running_server
from siltlog.testing.server import DeadLetter, MemoryServer

__all__ = ["DeadLetter", "MemoryServer", "running_server"]
