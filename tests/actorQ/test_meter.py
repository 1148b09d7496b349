"""The meter in whole runs of several processes: its logs, and what it takes of the time."""

import numpy as np
import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator

from actorQ.core import telemetry
from tests.actorQ import harness


@pytest.mark.parametrize(
    ("task", "quantize", "figures"),
    [
        ("gym,Pendulum-v1", 4, ("action_distance", "quantized_actions_at_bounds")),
        ("gym,CartPole-v0", 8, ("agreement", "lost_q")),
    ],
)
def test_run_has_the_meters_figures_in_all_its_logs(crew, tmp_path, task, quantize, figures):
    launched = crew.launch(
        "--logdir", str(tmp_path / "logs"), *harness.QUICK, f"--taskstr={task}",
        f"--quantize={quantize}", "--inference_mode=native", "--num_episodes=3000",
        "--push_share=0", "--meter_period_s=0.2", "--log_period_s=0.1",
    )
    assert launched.wait(120) == 0, launched.output()
    run = harness.run_folder(tmp_path / "logs")
    folder = run / telemetry.BROADCASTER
    versions = telemetry.read_csv(str(folder / telemetry.UPDATES_CSV))
    compared = telemetry.read_csv(str(folder / telemetry.METER_CSV))
    shares = np.array(versions["changed_share"])
    assert np.isnan(shares[0]) and np.nanmax(shares) > 0.01
    for layer in ("linear_0", "linear_1", "head"):
        errors = np.array(versions[f"weight_error_{layer}"])
        assert 0 < np.nanmax(errors) < 0.3
        low, high = (compared[f"activation_{end}_{layer}"] for end in ("low", "high"))
        assert np.all(np.array(low) < high)
    assert set(compared["model_version"]) <= set(versions["model_version"])
    assert compared["observations"][0] == 64
    for name in figures:
        assert np.all(np.array(compared[name]) >= 0)
    # The first measurement of each kind has no time before it.
    seconds = versions["seconds"][-1] - versions["seconds"][0]
    assert versions["meter_s"][-1] < 0.01 * seconds + 0.1
    events = plugin_event_accumulator.EventAccumulator(str(folder)).Reload()
    assert {"updates/changed_share", "updates/weight_error_head", f"meter/{figures[0]}"} <= set(
        events.Tags()["tensors"]
    )
    assert (run / "plots" / "quantization.png").exists()
    # Learner and actors took the same samples and transitions as ever.
    train = telemetry.last_row(str(run / telemetry.LEARNER / telemetry.TRAIN_CSV))
    assert train["learner_steps"] == 3000
