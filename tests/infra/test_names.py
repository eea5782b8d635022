"""What is said of names that nothing can have."""

from siltlog.infra import names


def test_of_a_name_that_is_too_long_its_length_is_told() -> None:
    assert names.name_problem("a" * names.NAME_CHARS_MAX) is None
    long = str(names.name_problem("a" * 197))
    assert "1 to 196 characters" in long and long.endswith("; it has 197")
    wrong = str(names.name_problem("a b"))
    assert "'a b'" in wrong and "it has" not in wrong
