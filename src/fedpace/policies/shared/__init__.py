"""What several policies have in common."""
