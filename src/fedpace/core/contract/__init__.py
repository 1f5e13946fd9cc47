"""What is asked of policies of one's own, and where in their code it was not kept."""
