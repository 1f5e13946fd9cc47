"""The vocabulary: events, commands, the policy contract, session, journal, seeds, errors."""
