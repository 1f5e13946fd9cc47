"""Many clients at once: executors, and stacks that train several clients in one call."""
