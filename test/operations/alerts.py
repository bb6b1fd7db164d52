"""Series with which each alert fires, and series with which it is silent.

The values are in the notation of promtool, one for each minute: `0+60x90` grows by 60 for 90 minutes, `1x90` stays.
"""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]

POD = 'job="sluicegate",instance="10.0.0.1:9901",pod="sluicegate-1"'
OTHER = 'job="sluicegate",instance="10.0.0.2:9901",pod="sluicegate-2"'
OF_POD = {"job": "sluicegate", "instance": "10.0.0.1:9901", "pod": "sluicegate-1"}
OF_JOB = {"job": "sluicegate"}
ROUTE = 'kind="Ingress",namespace="shop",name="web"'
OF_ROUTE = {"kind": "Ingress", "namespace": "shop", "name": "web"}
POLICY = 'kind="SecurityPolicy",namespace="shop",name="keys"'
OF_POLICY = {"kind": "SecurityPolicy", "namespace": "shop", "name": "keys"}
UPSTREAM = 'upstream="shop/web:http"'
OF_UPSTREAM = {"upstream": "shop/web:http"}


@dataclass
class Case:
    labels: dict[str, str]
    """The labels of the alert that fires, without its name and its severity."""
    bad: list[Series]
    """The alert fires with each of these series."""
    good: list[Series]
    at: str = "60m"
    """The time of the test."""


def requests(served: float, *failed: tuple[float, int]) -> Series:
    """Requests of a route: those served in a minute, and the periods of failures: those failed in a minute, and the minutes."""
    values, start, minutes = [], 0.0, 0
    for count, length in failed:
        values.append(f"{start:g}+{count:g}x{length - 1}")
        start, minutes = start + count * length, minutes + length
    return {f'sluicegate_requests_total{{{POD},{ROUTE},code="2xx"}}': f"0+{served:g}x{minutes}", f'sluicegate_requests_total{{{POD},{ROUTE},code="5xx"}}': " ".join(values)}


def endpoints(*pods: dict[str, int]) -> Series:
    """The endpoints of an upstream by state, as each pod sees them."""
    return {f'sluicegate_upstream_endpoints{{{pod},{UPSTREAM},state="{state}"}}': f"{found.get(state, 0)}x90"
            for pod, found in zip([POD, OTHER], pods) for state in ("ready", "unhealthy", "failing", "terminating", "not_ready")}


def histogram(metric: str, labels: str, below: int, above: int) -> Series:
    """Observations in a minute of at most 1 s, and of 1 s to 2.5 s."""
    return {f'{metric}_bucket{{{labels},le="1.0"}}': f"0+{below}x90", f'{metric}_bucket{{{labels},le="2.5"}}': f"0+{below + above}x90", f'{metric}_bucket{{{labels},le="+Inf"}}': f"0+{below + above}x90"}


def upstream(attempts: int, **counters: int) -> Series:
    """Attempts of an upstream in a minute, and other counters by reason."""
    return {f"sluicegate_upstream_attempts_total{{{POD},{UPSTREAM}}}": f"0+{attempts}x90",
            **{f'sluicegate_upstream_{name}_total{{{POD},{UPSTREAM},reason="reset"}}': f"0+{count}x90" for name, count in counters.items()}}


def counter(metric: str, labels: str, count: int | float) -> Series:
    return {f"{metric}{{{labels}}}": f"0+{count}x90"}


def gauge(metric: str, labels: str, value: int) -> Series:
    return {f"{metric}{{{labels}}}": f"{value}x90"}


BUILD = gauge("sluicegate_build_info", POD + ',version="0.1.0"', 1)
DAY = 86400

CASES = {
    # The error budget of the target 99.9 % is 0.1 %. The series without an alert are: a small share of failures, failures that
    # have ended, failures that have just begun, and failures of a quiet route.
    "SluicegateErrorBudgetFast": Case(OF_ROUTE, [requests(5400, (600, 90)), requests(27, (3, 90))], [
        requests(6000, (3, 90)), requests(6000, (600, 45), (30, 45)), requests(6000, (0, 54), (300, 36)), requests(0, (0, 48), (0.4, 42))]),
    "SluicegateErrorBudgetMedium": Case(OF_ROUTE, [requests(9900, (100, 450)), requests(99, (1, 450))], [
        requests(9950, (50, 450)), requests(9950, (500, 300), (20, 150)), requests(9500, (0, 385), (500, 65)), requests(0, (0, 380), (0.2, 70))], at="7h"),
    "SluicegateErrorBudgetSlow": Case(OF_ROUTE, [requests(9980, (20, 1400)), requests(99.8, (0.2, 1400))], [
        requests(9995, (5, 1400)), requests(9995, (500, 600), (2, 800)), requests(9900, (0, 1200), (100, 200)), requests(0, (0, 1140), (0.01, 260))], at="1326m"),
    "SluicegateNoEndpoint": Case(OF_UPSTREAM, [counter("sluicegate_upstream_failures_total", f'{POD},{UPSTREAM},reason="no_endpoint"', 6)], [
        counter("sluicegate_upstream_failures_total", f'{POD},{UPSTREAM},reason="reset"', 6)]),
    # One pod sees a healthy endpoint; then a Service without endpoints, such as a Service that was scaled to zero.
    "SluicegateNoHealthyEndpoint": Case(OF_UPSTREAM, [endpoints({"not_ready": 1}, {"unhealthy": 1})], [endpoints({"unhealthy": 1}, {"ready": 1}), endpoints({}, {})]),
    "SluicegateUnhealthy": Case(OF_UPSTREAM, [endpoints({"ready": 2}, {"ready": 1, "unhealthy": 1}), endpoints({"failing": 1, "ready": 1})], [endpoints({"ready": 1, "terminating": 1, "not_ready": 1})]),
    "SluicegateUpstreamFails": Case(OF_UPSTREAM, [upstream(600, failures=30)], [upstream(600, failures=3), upstream(1, failures=1)]),
    "SluicegateRetries": Case(OF_UPSTREAM, [upstream(600, retries=90)], [upstream(600, retries=30)]),
    "SluicegateNotRepeated": Case(OF_UPSTREAM, [counter("sluicegate_upstream_not_repeated_total", f"{POD},{UPSTREAM}", 12)], [counter("sluicegate_upstream_not_repeated_total", f"{POD},{UPSTREAM}", 3)]),
    "SluicegateSlow": Case(OF_UPSTREAM, [histogram("sluicegate_upstream_duration_seconds", f"{POD},{UPSTREAM}", 90, 10)], [histogram("sluicegate_upstream_duration_seconds", f"{POD},{UPSTREAM}", 1000, 1)]),
    "SluicegateNoneReady": Case({}, [gauge("sluicegate_ready", POD, 0), {}], [{**gauge("sluicegate_ready", POD, 0), **gauge("sluicegate_ready", OTHER, 1)}]),
    "SluicegateTargetDown": Case(OF_POD, [{f"up{{{POD}}}": "1x10 0x80", f'sluicegate_build_info{{{POD},version="0.1.0"}}': "1x10 stale"}], [
        {f"up{{{POD}}}": "1x90", **BUILD}, {**gauge("up", 'job="other",instance="10.0.0.9:80"', 0), **BUILD}]),
    "SluicegateNotReady": Case(OF_POD, [gauge("sluicegate_ready", POD, 0)], [gauge("sluicegate_ready", POD, 1)]),
    "SluicegateRestarts": Case(OF_POD, [{f"process_start_time_seconds{{{POD}}}": "100x40 200x5 300x5 400x40", **BUILD}], [
        {f"process_start_time_seconds{{{POD}}}": "100x40 200x5 300x45", **BUILD}, {f"process_start_time_seconds{{{OTHER}}}": "100x40 200x5 300x5 400x40", **BUILD}]),
    "SluicegateMemory": Case(OF_POD, [{**gauge("process_resident_memory_bytes", POD, 900_000_000), **BUILD}], [
        {**gauge("process_resident_memory_bytes", POD, 700_000_000), **BUILD}, {**gauge("process_resident_memory_bytes", OTHER, 900_000_000), **BUILD}]),
    "SluicegateFileDescriptors": Case(OF_POD, [{**gauge("process_open_fds", POD, 900), **gauge("process_max_fds", POD, 1000), **BUILD}], [
        {**gauge("process_open_fds", POD, 700), **gauge("process_max_fds", POD, 1000), **BUILD},
        {**gauge("process_open_fds", OTHER, 900), **gauge("process_max_fds", OTHER, 1000), **BUILD}]),
    "SluicegateVersionsDiffer": Case(OF_JOB, [{**BUILD, **gauge("sluicegate_build_info", OTHER + ',version="0.2.0"', 1)}], [{**BUILD, **gauge("sluicegate_build_info", OTHER + ',version="0.1.0"', 1)}], at="80m"),
    "SluicegateConfigErrors": Case(OF_JOB, [gauge("sluicegate_config_problems", POD + ',severity="error"', 2)], [
        {**gauge("sluicegate_config_problems", POD + ',severity="error"', 0), **gauge("sluicegate_config_problems", POD + ',severity="warning"', 2)}]),
    "SluicegatePolicyUnusable": Case(OF_POLICY, [gauge("sluicegate_policy_unusable", f"{POD},{POLICY}", 1)], [gauge("sluicegate_policy_unusable", f"{POD},{POLICY}", 0)]),
    "SluicegateListenerDown": Case({"listener": "Gateway shop/edge, listener tcp", "address": "0.0.0.0:5432", "protocol": "TCP"}, [
        gauge("sluicegate_listener_up", POD + ',listener="Gateway shop/edge, listener tcp",address="0.0.0.0:5432",protocol="TCP"', 0)], [gauge("sluicegate_listener_up", POD + ',listener="Gateway shop/edge, listener tcp",address="0.0.0.0:5432",protocol="TCP"', 1)]),
    "SluicegateSlowChanges": Case(OF_JOB, [histogram("sluicegate_propagation_seconds", POD, 5, 5)], [histogram("sluicegate_propagation_seconds", POD, 10, 0)]),
    "SluicegateNoLeader": Case(OF_JOB, [{**gauge("sluicegate_leader", POD, 0), **gauge("sluicegate_leader", OTHER, 0)}, {**gauge("sluicegate_leader", POD, 1), **gauge("sluicegate_leader", OTHER, 1)}], [
        {**gauge("sluicegate_leader", POD, 0), **gauge("sluicegate_leader", OTHER, 1)}, {}]),
    "SluicegateReviewsFail": Case(OF_JOB, [counter("sluicegate_admission_reviews_total", POD + ',verdict="failed"', 1)], [counter("sluicegate_admission_reviews_total", POD + ',verdict="denied"', 1)]),
    "SluicegateControlPlaneLost": Case(OF_POD, [gauge("sluicegate_control_connected", POD, 0)], [gauge("sluicegate_control_connected", POD, 1)]),
    "SluicegateEndpointsOld": Case(OF_POD, [gauge("sluicegate_endpoints_confirmed_timestamp_seconds", POD, 60)], [{f"sluicegate_endpoints_confirmed_timestamp_seconds{{{POD}}}": "0+60x90"}]),
    "SluicegatePlanesBehind": Case(OF_JOB, [gauge("sluicegate_planes_behind", POD, 1)], [gauge("sluicegate_planes_behind", POD, 0)]),
    "SluicegatePlanesDiffer": Case(OF_POD, [gauge("sluicegate_control_resources_refused", POD, 3)], [gauge("sluicegate_control_resources_refused", POD, 0)]),
    "SluicegateCertificateExpires": Case({"source": "Secret shop/tls", "key": "ECDSA"}, [gauge("sluicegate_certificate_not_after_seconds", POD + ',source="Secret shop/tls",key="ECDSA"', 10 * DAY)], [
        gauge("sluicegate_certificate_not_after_seconds", POD + ',source="Secret shop/tls",key="ECDSA"', 20 * DAY)]),
    "SluicegateCertificateExpiresSoon": Case({"source": "Secret shop/tls", "key": "ECDSA"}, [gauge("sluicegate_certificate_not_after_seconds", POD + ',source="Secret shop/tls",key="ECDSA"', 2 * DAY)], [
        gauge("sluicegate_certificate_not_after_seconds", POD + ',source="Secret shop/tls",key="ECDSA"', 10 * DAY)]),
    "SluicegateAcmeOrdersFail": Case(OF_JOB, [{f"sluicegate_acme_certificates_failing{{{POD}}}": "2x1600"}], [{f"sluicegate_acme_certificates_failing{{{POD}}}": "0x1600"}, {f"sluicegate_acme_certificates_failing{{{POD}}}": "2x700 0x900"}], at="26h"),
    "SluicegateHandshakes": Case(OF_JOB, [{**counter("sluicegate_tls_handshakes_total", POD + ',version="1.3",resumed="false"', 90), **counter("sluicegate_tls_handshake_failures_total", POD + ',reason="unknown_name"', 10)}], [
        {**counter("sluicegate_tls_handshakes_total", POD + ',version="1.3",resumed="false"', 90), **counter("sluicegate_tls_handshake_failures_total", POD + ',reason="closed"', 10)},
        {**counter("sluicegate_tls_handshakes_total", POD + ',version="1.3",resumed="false"', 990), **counter("sluicegate_tls_handshake_failures_total", POD + ',reason="unknown_name"', 10)}]),
    "SluicegateAuthenticationDown": Case({**OF_POLICY, "reason": "keys_unknown"}, [counter("sluicegate_policy_denied_total", f'{POD},{POLICY},reason="keys_unknown"', 6)], [
        counter("sluicegate_policy_denied_total", f'{POD},{POLICY},reason="no_credentials"', 6)]),
    "SluicegateSharedLimitsDown": Case(OF_POLICY, [{**gauge("sluicegate_rate_limit_shared_up", f"{POD},{POLICY}", 0), **gauge("sluicegate_rate_limit_shared_up", f"{OTHER},{POLICY}", 1)}], [
        gauge("sluicegate_rate_limit_shared_up", f"{POD},{POLICY}", 1)]),
    "SluicegateLimitReached": Case(OF_POLICY, [{**counter("sluicegate_policy_denied_total", f'{POD},{POLICY},reason="rate_limit"', 20), **counter("sluicegate_policy_admitted_total", f"{POD},{POLICY}", 80)}], [
        {**counter("sluicegate_policy_denied_total", f'{POD},{POLICY},reason="rate_limit"', 5), **counter("sluicegate_policy_admitted_total", f"{POD},{POLICY}", 95)},
        {**counter("sluicegate_policy_denied_total", f'{POD},{POLICY},reason="no_credentials"', 20), **counter("sluicegate_policy_admitted_total", f"{POD},{POLICY}", 80)}]),
    "SluicegateConnectionsFull": Case({**OF_POD, "worker": "0"}, [gauge("sluicegate_connections_open", POD + ',worker="0"', 60000)], [gauge("sluicegate_connections_open", POD + ',worker="0"', 50000)]),
    "SluicegateAcceptErrors": Case(OF_POD, [counter("sluicegate_accept_errors_total", POD, 1)], [gauge("sluicegate_accept_errors_total", POD, 7)]),
    "SluicegateFloods": Case(OF_JOB, [counter("sluicegate_http2_floods_total", POD, 1)], [gauge("sluicegate_http2_floods_total", POD, 7)]),
    "SluicegateStalledUploads": Case(OF_JOB, [counter("sluicegate_client_faults_total", POD + ',reason="upload_stalled"', 90)], [
        counter("sluicegate_client_faults_total", POD + ',reason="client_closed"', 90), counter("sluicegate_client_faults_total", POD + ',reason="body_too_slow"', 30)]),
    "SluicegateRejected": Case(OF_JOB, [counter("sluicegate_requests_rejected_total", POD + ',reason="bare_lf"', 900)], [counter("sluicegate_requests_rejected_total", POD + ',reason="bare_lf"', 60)]),
    "SluicegateUnrouted": Case(OF_JOB, [counter("sluicegate_requests_unrouted_total", POD, 900)], [counter("sluicegate_requests_unrouted_total", POD, 60)]),
    "SluicegateLogLost": Case(OF_POD, [counter("sluicegate_access_log_dropped_total", POD, 1)], [gauge("sluicegate_access_log_dropped_total", POD, 7)]),
    "SluicegateSpansLost": Case({**OF_JOB, "reason": "queue_full"}, [counter("sluicegate_spans_dropped_total", POD + ',reason="queue_full"', 1)], [counter("sluicegate_spans_dropped_total", POD + ',reason="over_limit"', 1)]),
    "SluicegateAnalyticsLost": Case(OF_POD, [counter("sluicegate_analytics_dropped_total", POD, 1), counter("sluicegate_analytics_database_failures_total", POD, 1)], [
        {**gauge("sluicegate_analytics_dropped_total", POD, 7), **gauge("sluicegate_analytics_database_failures_total", POD, 7)}]),
    "SluicegateAuditLost": Case(OF_POD, [counter("sluicegate_audit_dropped_total", POD, 1), counter("sluicegate_audit_database_failures_total", POD, 1)], [
        {**gauge("sluicegate_audit_dropped_total", POD, 7), **gauge("sluicegate_audit_database_failures_total", POD, 7)}]),
}
