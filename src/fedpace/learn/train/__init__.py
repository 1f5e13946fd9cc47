"""One client's training: trainer, steps, optimiser, estimates, and training by a real clock."""
