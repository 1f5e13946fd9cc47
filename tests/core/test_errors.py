import pytest

from fedpace.core.errors import ConfigError, needs_extra


def test_a_missing_package_is_named_with_the_extra_that_brings_it():
    with (
        pytest.raises(
            ConfigError, match=r"no_such_package is missing; .* pip install 'fedpace\[net\]'"
        ),
        needs_extra("net"),
    ):
        import no_such_package  # noqa: F401


def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), needs_extra("net"):
        _ = 1 / 0
