"""What runs and watches a server elsewhere: Prometheus's rules, Grafana's dashboards."""
