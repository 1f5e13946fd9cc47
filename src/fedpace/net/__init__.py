"""Real time: the same commands over gRPC."""
