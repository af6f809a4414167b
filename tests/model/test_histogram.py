"""Quantiles of histograms."""

from __future__ import annotations

import pytest

from mesh.model.histogram import quantile


def test_quantiles_are_within_their_bucket() -> None:
    bounds = (1.0, 2.0, 4.0)
    assert quantile((0, 0, 0, 0), bounds, 0.5) is None
    assert quantile((), bounds, 0.5) is None
    assert quantile((0, 10, 0, 0), bounds, 0.5) == 1.5
    assert quantile((5, 0, 5, 0), bounds, 0.99) == pytest.approx(3.96)
    assert quantile((0, 0, 0, 3), bounds, 0.5) == 4.0
