"""Knows S3's refusals in the errors of boto3, deltalake and Spark: names the permission that is missing, or says that
the clock is wrong."""

import re
from typing import Any

from siltlog.infra.errors import SiltlogError, problem

_REASONS = ("AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch")
CODES = ("403", "Forbidden", *_REASONS)
_SAYS = re.compile(
    r"AccessDenied|403 Forbidden|Status Code: 403|lacked the necessary privileges"
    r"|InvalidAccessKeyId|SignatureDoesNotMatch"
)
_REASON = re.compile("|".join(_REASONS))
_ANSWERED = re.compile(r"<Code>(\w+)</Code>")
_SKEWED = re.compile(r"RequestTimeTooSkewed|RequestExpired")
_REQUEST = re.compile(r"performing ([A-Z]+) (\S+)")
_OBJECT = re.compile(r"s3a://[^\s:]+")
_HADOOP = {"PUT": "s3:PutObject", "upload": "s3:PutObject", "elete": "s3:DeleteObject", "list": "s3:ListBucket"}
_ACTIONS = {
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
}
"""The permission that each operation of the API needs; the others write an object."""


def says_denied(text: str) -> bool:
    """Whether an error of a library means that a permission is missing."""
    answered = _ANSWERED.search(text)
    if answered is not None:
        # S3 has other reasons for a 403 too.
        return answered[1] in CODES
    return _SAYS.search(text) is not None and not says_skewed(text)


def says_skewed(text: str) -> bool:
    """Whether an error of a library means that S3 takes the time of a request for wrong, which it also tells by 403."""
    return _SKEWED.search(text) is not None


def skewed(place: str, **members: Any) -> SiltlogError:
    return problem(
        "topic_unavailable",
        f"S3 refuses requests for {place}, as the clock of this machine differs too much from its own "
        "(RequestTimeTooSkewed): set the clock of this machine, and keep it right by NTP",
        **members,
    )


def write_was_denied(error: Exception) -> bool:
    """Whether deltalake was not allowed to write: then nothing of what it wrote is there."""
    text = str(error)
    asked = _REQUEST.search(text)
    return not isinstance(error, SiltlogError) and says_denied(text) and asked is not None and asked[1] == "PUT"


def denied(operation: str, place: str, reason: str, **members: Any) -> SiltlogError:
    """`place` is the object or folder, `operation` the API's name of what was asked."""
    return missing(_ACTIONS.get(operation, "s3:PutObject"), place, reason, **members)


def missing_permission(text: str, place: str, **members: Any) -> SiltlogError:
    """Finds the missing permission in an error of deltalake or Spark, which names the request's method and address."""
    asked = _REQUEST.search(text)
    if asked is None:
        # Hadoop names what it was at, and mostly the object.
        named = _OBJECT.search(text)
        action = next((action for word, action in _HADOOP.items() if word in text), "s3:GetObject")
        return missing(action, place if named is None else named[0], _reason(text), **members)
    action = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": "s3:DeleteObject"}.get(asked[1], "s3:PutObject")
    if "list-type=" in asked[2] or asked[1] == "LIST":
        action = "s3:ListBucket"
    return missing(action, asked[2].partition("?")[0], _reason(text), **members)


def _reason(text: str) -> str:
    """What S3 said; answers without a body have nothing but their status."""
    said = _REASON.search(text)
    return "403 Forbidden" if said is None else said[0]


def missing(action: str, place: str, reason: str, **members: Any) -> SiltlogError:
    return problem(
        "store_denied",
        f"S3 does not allow {action} on {place} ({reason}): allow it to the role or the keys that this runs with; "
        "terraform/ has the policies of servers and jobs",
        **members,
    )
