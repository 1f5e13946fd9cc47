"""Real time, whatever carries the messages: world, reports, spool, resume."""
