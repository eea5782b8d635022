"""A panel of a dashboard, and how a dashboard of panels is written down for Grafana (its JSON model, version 39)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["short", "ops", "reqps", "Bps", "bytes", "s", "percentunit", "dateTimeFromNow", "bool_yes_no"]
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: Unit
    series: Sequence[tuple[str, str]]
    """(expression, legend) of each."""
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 8
    """Columns of the dashboard, which has 24."""
    text: str = ""
    warns_at: float | None = None
    """Values from this one on are drawn in red."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    panels: Sequence[Panel]
    variables: Sequence[tuple[str, str]] = ()
    """(name, metric that has it as a label) of what can be chosen beside the server."""

    def document(self) -> dict[str, Any]:
        """The dashboard as Grafana imports it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["siltlog"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [_source_variable(), *(_variable(*chosen) for chosen in self._variables())]},
            "links": [{"type": "dashboards", "tags": ["siltlog"], "title": "Siltlog", "asDropdown": True}],
            "panels": self._placed(),
        }

    def _variables(self) -> list[tuple[str, str]]:
        return [("instance", "silt_build_info"), *self.variables]

    def _placed(self) -> list[dict[str, Any]]:
        placed, x, y = [], 0, 0
        for number, panel in enumerate(self.panels, 1):
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            placed.append(_panel(number, panel, x, y))
            x += panel.width
        return placed


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.warns_at is not None:
        steps.append({"color": "red", "value": panel.warns_at})
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for place, (expression, legend) in enumerate(panel.series)
        ],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "variable"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
