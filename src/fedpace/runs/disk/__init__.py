"""A run on disk: the lock of its folder, generations of snapshots, settings that changed."""
