"""What a served run holds against members that lie, fail or hang, and against its own pauses."""
