"""A copy of the package as a later release may be: another version, which offers a higher format, and says and asks
for more in its beats and views than this one knows of."""

import shutil
from pathlib import Path

import siltlog

VERSION = "99.0.0"
_MORE = """

class Beat(EarlierBeat, frozen=True, kw_only=True):
    formats: int = FORMAT + 1
    mood: str = "cheerful"
"""
_WISH = """

def cheer(journal: str) -> Wish:
    return Wish(id=f"cheer {journal}", kind="cheer")
"""
_CHANGES = {
    "infra/cluster/beat.py": (
        ("class Beat(msgspec", "class EarlierBeat(msgspec"),
        ("\n\n_beats = ", _MORE + "\n\n_beats = "),
    ),
    "infra/cluster/member.py": (
        (
            "            wishes=tuple(self._wishes.values()),",
            "            wishes=(*self._wishes.values(), cheer(self.journal)),",
        ),
        ("\n\nclass Member:", _WISH + "\n\nclass Member:"),
    ),
    "infra/cluster/view.py": (
        ("    wishes: Mapping[str, str] = {}", '    mood: str = "cheerful"\n    wishes: Mapping[str, str] = {}'),
    ),
}


def later_release(folder: Path) -> Path:
    """Where it is, for `ClusterNode.release`."""
    source = Path(siltlog.__file__).parent
    # Bytecode goes along: what is changed below is compiled anew, and nothing else.
    shutil.copytree(source, folder / source.name)
    for name, changes in _CHANGES.items():
        path = folder / source.name / name
        text = path.read_text("utf-8")
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        path.write_text(text, "utf-8")
    named = folder / f"{source.name}-{VERSION}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {source.name}\nVersion: {VERSION}\n", "utf-8")
    return folder
