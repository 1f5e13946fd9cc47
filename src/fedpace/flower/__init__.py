"""Any policy over Flower: a ServerApp and a ClientApp.

Flower starts a process for every message, which takes 3 to 6 s, and cannot cancel: for tasks of
minutes. `fedpace serve` and `fedpace join` are the native way. Where Flower makes a difference to what
policies are promised, it is said with `Differs:` in `transport` and `client`.
"""

from fedpace.flower.apps import client_app, server_app
from fedpace.flower.settings import FlowerSettings

__all__ = ["FlowerSettings", "client_app", "server_app"]
