"""Files for those who have Prometheus and Grafana: docs/howto/metrics.md says what becomes of them.

`grafana.json` is a dashboard, `alerts.yml` holds rules for Prometheus, and `statsd_mapping.yml` says to
statsd_exporter how names become labels.
"""
