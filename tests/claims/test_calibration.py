"""What the recorded calibration settles."""

from __future__ import annotations

from fakes import H200
from pagebench.harness.instruments import calibrate as calibration
from pagebench.harness.records import store
from pagebench.harness.records.calibration import Calibration
from pagebench.kernels.probes.calibration import WARP_LOADS


def test_the_recorded_calibration_settles_what_l1_requests_see() -> None:
    (record,) = store.read([H200 / "calibration.jsonl"], Calibration).of(Calibration)
    assert record.seen["cal_ldg"]["ldg"] == (WARP_LOADS, WARP_LOADS)
    assert record.seen["cal_async_cg"]["ldgsts"] == (WARP_LOADS, WARP_LOADS)
    sees = calibration.sees_async(record)
    assert sees["l1_requests of cal_async_cg"] is True
    assert sees["l1_requests of cal_bulk"] is False
    assert "ldg_active" in record.distrusted
