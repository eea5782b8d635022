"""Grafana's dashboards, written as code."""
