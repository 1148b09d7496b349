"""The figures of policies in C on a Cortex-M, and those beside TensorFlow Lite Micro."""

import csv
import json

import pytest

from baseline.deploy import cortex_files
from baseline.deploy import cortex_tables
from baseline.deploy import firmware
from baseline.deploy import loading
from baseline.deploy import micro_player
from tests.baseline import small_agents

pytestmark = pytest.mark.skipif(
    bool(firmware.missing()), reason=f"{', '.join(firmware.missing())} not installed"
)
SETTINGS = cortex_files.Settings(
    tuple(cortex_files.Width(bits) for bits in (32, 8)), (firmware.CORES["cortex-m4"],),
    states=40, episodes=4, instructions=200_000, calibration_episodes=1,
)


@pytest.fixture(name="agent", scope="module")
def fixture_agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cart")
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    return loading.load(str(small_agents.save(folder, "ppo", "CartPole-v1", made).parent))


@pytest.fixture(name="rows", scope="module")
def fixture_rows(agent):
    return list(cortex_files.measure(agent, SETTINGS))


def test_fewer_bits_take_less_flash_and_act_as_the_reference(rows):
    wide, narrow = rows
    assert (wide.bits, narrow.bits, wide.core) == (32, 8, "cortex-m4")
    assert narrow.flash_bytes < wide.flash_bytes and wide.alike == 1.0
    assert narrow.exact == 1.0 and wide.exact is None
    assert narrow.core_equal == wide.core_equal == 1.0 and 2 <= narrow.core_states <= 40


def test_the_file_of_8_bits_stands_beside_the_interpreter(rows):
    pytest.importorskip("tflite_micro")
    wide, narrow = rows
    beside = narrow.interpreted
    assert wide.interpreted is None
    assert 0 < beside.c_s < beside.micro_s < 1 and beside.micro_bytes > 1000
    assert beside.micro_alike > 0.7


def test_without_the_interpreter_its_figures_are_missing(agent, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(micro_player, "is_installed", lambda: False)
    (row,) = cortex_files.measure(
        agent, cortex_files.Settings(
            (cortex_files.Width(8),), SETTINGS.cores, 20, 2, 100_000, calibration_episodes=1
        )
    )
    assert row.interpreted is None and row.instructions > 0
    assert "TFLite Micro: is not installed" in capfd.readouterr().err
    cortex_tables.report([row], SETTINGS, str(tmp_path))
    assert "TFLM us" not in (tmp_path / "cortex_m.md").read_text()


def test_table_json_and_csv_have_the_figures(rows, tmp_path):
    cortex_tables.report(rows, SETTINGS, str(tmp_path))
    with open(tmp_path / "cortex_m.csv", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["bits"] for row in found] == ["32", "8"] and found[0]["c_s"] == ""
    stored = json.loads((tmp_path / "cortex_m.json").read_text())["rows"]
    assert stored[1]["instructions"] == pytest.approx(float(found[1]["instructions"]), rel=1e-4)
    if rows[1].interpreted is not None:
        assert float(found[1]["micro_s"]) == pytest.approx(stored[1]["micro_s"], rel=1e-4)
        assert "TFLM us" in (tmp_path / "cortex_m.md").read_text()
    assert (tmp_path / "cortex_m.png").stat().st_size > 1000
