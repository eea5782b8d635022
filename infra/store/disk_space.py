"""How it is told that a disk has no space left: by a number, or only by the words of libraries that keep none."""

import errno

ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("No space left", "os error 28")


def says_full(text: str) -> bool:
    return any(words in text for words in _WORDS)
