"""The first part of advice: timing-only runs of all policies, and which of them are worth training."""
