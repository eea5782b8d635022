"""The finding of one check."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check. `wrong`: something does not work. `warning`: it works, and will not always."""

    check: str
    state: State
    detail: str
    mend: str = ""
    """The command or setting that puts it right; empty where nothing is to be mended."""
