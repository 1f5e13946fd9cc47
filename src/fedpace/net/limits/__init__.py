"""Limits on connections, before anybody has proved anything."""
