"""Where a topic's table is, for any reader of Delta tables."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.client.address import default_url
from siltlog.infra.client.admin import Admin
from siltlog.infra.errors import ConfigError


def table_uri(
    topic: str,
    url: str | Sequence[str] | None = None,
    root: str | None = None,
    scheme: str | None = None,
) -> str:
    """Asks the server at `url` (else `SILT_URL`); with `root`, which is the server's `SILT_ROOT`, nobody.

    `scheme="s3a"` writes an S3 location as Spark wants it. Raises UnknownTopic when the server has no such topic.
    """
    if root is None:
        with Admin(url or default_url()) as admin:
            uri = str(admin.topic(topic)["table_uri"])
    else:
        wrong = names.readable_topic_problem(topic)
        if wrong is not None:
            raise ConfigError(wrong)
        uri = f"{root.rstrip('/')}/{names.topic_path(topic)}"
    if scheme is None or urlsplit(uri).scheme not in ("s3", "s3a"):
        return uri
    return f"{scheme}://{uri.partition('://')[2]}"
