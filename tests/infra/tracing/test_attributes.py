"""Attributes go by the names of the semantic conventions wherever those have one."""

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes

from siltlog.infra.tracing import attributes


def test_every_name_is_of_the_conventions_or_begins_with_ours() -> None:
    known = {
        value
        for module in (messaging_attributes, error_attributes, http_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    ours = {value for name, value in vars(attributes).items() if name.isupper()} - {attributes.SILTLOG}
    assert {name for name in ours - known if not name.startswith("siltlog.")} == set()
    assert len(ours & known) >= 11
