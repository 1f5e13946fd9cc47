"""The only room with torch: layers, training, aggregation, server optimisers."""
