"""The ServerApp."""

from pathlib import Path

from fedpace.flower import server_app
from two_nodes.task import whole

app = server_app(Path(__file__).with_name("config.toml"), whole)
