"""A run put together: config, plugins, run folder, simulate, serve, compare."""
