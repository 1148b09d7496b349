"""Golden values of the breakdown table on hand-written logs."""

import csv

from actorQ.core import telemetry
from actorQ.scripts import breakdown_table
from tests.actorQ.experiments import log_files


def test_breakdown_main_writes_files(tmp_path, capsys):
    out = str(tmp_path / "out")
    runs = [log_files.breakdown_run(tmp_path, f"q{q}", q, scale=q / 8) for q in (32, 16, 8)]
    breakdown_table.main([*runs, "--out", out])
    lines = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    # Inference takes 4, 2 and 1 s of 5, 3 and 2 s per 1000 steps.
    assert cells == [
        "step (inference)", "6.00", "80.0 %", "4000.0", "3.00", "66.7 %", "2000.0", "1.50",
        "50.0 %", "1000.0",
    ]
    with open(f"{out}/breakdown.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(telemetry.PHASES)
    assert (rows[0]["precision"], rows[0]["us_per_step"]) == ("fp32", "4000")
    log_files.check_figure(f"{out}/breakdown.png")
