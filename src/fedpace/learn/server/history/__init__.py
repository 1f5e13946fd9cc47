"""What a model of the server keeps of earlier steps."""
