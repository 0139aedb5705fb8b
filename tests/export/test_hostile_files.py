"""A share of hostile.py's changes of files and texts, whose other outcomes are none but a graph that runs or GraphError."""
import sys

import hostile
import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="the bounds of processes are Linux's")
def test_changed_files_are_graphs_or_graph_errors(tmp_path):
    told = []
    counts = hostile.survey(200, 0, tmp_path, told.append)
    assert told == [] and counts["refused"] > 100 and counts["loaded"] > 10
