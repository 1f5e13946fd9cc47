"""The server's models: aggregation, server optimisers, evaluation."""
