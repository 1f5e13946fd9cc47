"""The model server: aggregation as a pipeline, server optimisers, evaluation."""
