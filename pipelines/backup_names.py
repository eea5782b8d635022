"""Names that outlive a process: what lies in a backup. Paths are relative to its own root.

A name here is part of the stored format. Changing one needs a migration.
"""

BACKUPS_FOLDER = "backups"
FILES_FOLDER = "files"


def manifest(backup_id: str) -> str:
    """Written last: a backup without one is none."""
    return f"{BACKUPS_FOLDER}/{backup_id}/manifest.json"


def begun(backup_id: str) -> str:
    """Names the object that is there from the beginning: while a backup is under way no other's files are removed."""
    return f"{BACKUPS_FOLDER}/{backup_id}/begun"


def table(backup_id: str, topic: str) -> str:
    """Names the object that says what a topic's table was: properties, app transactions, the list of its files."""
    return f"{BACKUPS_FOLDER}/{backup_id}/topics/{topic}.json"


def access(backup_id: str) -> str:
    """Names the copy of the access document."""
    return f"{BACKUPS_FOLDER}/{backup_id}/access.json"


def state(backup_id: str, topic_id: str, path: str) -> str:
    """An object beside the table; `path` is relative to the topic's state folder."""
    return f"{BACKUPS_FOLDER}/{backup_id}/state/{topic_id}/{path}"


def data_file(topic_id: str, path: str) -> str:
    """A data file, shared by every backup that has it: a file of that name never changes."""
    return f"{FILES_FOLDER}/{topic_id}/{path}"
