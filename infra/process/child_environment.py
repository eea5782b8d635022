"""The part of this process's environment that its children are given: what they need, by name.

A job runs what others wrote, and whoever reads its environment has the secrets of the server, were they in it.
"""

from collections.abc import Iterable, Mapping

from siltlog.infra import names

_SYSTEM = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLUMNS", "NO_COLOR", "LANG", "LANGUAGE", "TZ"),
        *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    )
)
_OF_SYSTEM = ("LC_",)
_PROGRAMS = frozenset(
    (
        *("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OMP_NUM_THREADS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    )
)
_OF_PROGRAMS = ("PYTHON", "XDG_", "ARROW_", "MIMALLOC_", "MALLOC_", "AWS_")
"""Keys for S3 are the SDK's own variables: who works on the tables needs them."""
OF_TRACES = "OTEL_"
"""Begins the variables of OpenTelemetry, which may have a key to who collects spans."""
_OF_QUERIES = frozenset(("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"))
_OF_PYTHON = "PYTHON"
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Libraries that begin threads, or set memory aside, when they are loaded leave it with these."""
_NEVER = f"{names.ENV_PREFIX}SECRET"


def of_system(variables: Mapping[str, str]) -> dict[str, str]:
    """What any program needs; nothing of ours, and no keys."""
    return {name: value for name, value in variables.items() if name in _SYSTEM or name.startswith(_OF_SYSTEM)}


def of_queries(variables: Mapping[str, str]) -> dict[str, str]:
    """What Python needs to begin, for a process that runs what others wrote: no key, no proxy, no home."""
    return {
        name: value
        for name, value in variables.items()
        if name in _OF_QUERIES or name.startswith((*_OF_SYSTEM, _OF_PYTHON))
    } | _ONE_THREAD


def of_jobs(variables: Mapping[str, str], settings: Iterable[str] = ()) -> dict[str, str]:
    """What programs that work on the tables need, and of ours the variables that `settings` names."""
    named = {*_PROGRAMS, *settings}
    more = {
        name: value
        for name, value in variables.items()
        if (name in named or name.startswith((*_OF_PROGRAMS, OF_TRACES))) and not name.startswith(_NEVER)
    }
    return of_system(variables) | more
