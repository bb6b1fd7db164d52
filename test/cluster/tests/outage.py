"""An outage of the API server of some minutes: `make test-cluster CLUSTER=outage`. The test takes 7 minutes, so the other runs skip it."""

from .shop import Shop

AWAY = 300
"""The duration of the outage, in seconds."""


class Outage(Shop):
    def test_five_minute_outage_of_the_api_server_loses_no_request(self) -> None:
        with self.load():
            returned = self.outlive_api_server(AWAY)
        self.assertLess(returned.served, 2)
        self.assertLess(returned.in_step, 2)
