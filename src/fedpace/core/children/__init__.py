"""Child processes: what they are sent, and what they need of this process."""
