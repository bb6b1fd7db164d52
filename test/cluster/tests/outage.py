"""The API server away for minutes: `make test-cluster CLUSTER=outage`. It takes 7 minutes, so it is no part of the others."""

from .shop import Shop

AWAY = 300
"""Seconds."""


class Outage(Shop):
    def test_five_minutes_without_the_api_server_cost_no_request(self) -> None:
        with self.load():
            returned = self.outlive_api_server(AWAY)
        self.assertLess(returned.served, 2)
        self.assertLess(returned.in_step, 2)
