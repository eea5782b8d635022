"""What docs/cluster.md shows, run against three nodes over one root, by way of the one that is killed last."""

from pathlib import Path

import doc_page
import pytest
from cluster_rig import STEADY_MS, cluster

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_page_of_the_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path / "nodes", 3, lease_ms=STEADY_MS) as nodes:
        assert doc_page.run(PAGE.read_text("utf-8"), nodes["n1"].url, tmp_path) == 3
