"""The ClientApp."""

from fedpace.flower import client_app
from two_nodes.task import share

app = client_app(share)
