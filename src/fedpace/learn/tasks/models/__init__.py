"""Models that come with fedpace, for images, speech and text."""

from fedpace.learn.tasks.models.images import build_model

__all__ = ["build_model"]
