"""The family of errors: who made the mistake decides the type.

A message says what was wrong, what was expected and what to do about it.
"""


class FedpaceError(Exception):
    """Base of all errors that fedpace raises on purpose."""


class ConfigError(FedpaceError):
    """A setting, file or argument from the user cannot be used."""


class PolicyError(FedpaceError):
    """A policy broke a rule of the contract."""


class PeerError(FedpaceError):
    """A client or runtime reported something that cannot be true."""


class JournalError(FedpaceError):
    """A journal or snapshot on disk is broken or belongs to another run."""
