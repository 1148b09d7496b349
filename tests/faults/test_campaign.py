"""Faults against a live run: the campaign itself, its draws and its checks."""

import json

import numpy as np
import pytest

from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.wire import connection as wire
from actorQ.wire import replay
from actorQ.wire import server as serving
from tests.faults import campaign as faults
from tests.faults import checks


def test_draw_every_kind_meets_every_victim_and_actors_differ():
    rng = np.random.default_rng(0)
    drawn = [faults.draw(rng, number) for number in range(90)]
    groups = {fault.group for fault in drawn}
    assert groups == {f"{kind} {victim}" for kind, victim in faults.PAIRS}
    assert {fault.victim for fault in drawn} >= {"actor_1", "actor_2"}
    for fault in drawn:
        assert (fault.seconds == 0) == (fault.kind == faults.KILL)


def test_summary_has_medians_and_extremes_of_each_group():
    rounds = [
        {"group": "kill learner", "rate": rate, "steps": 50.0 * s, "held_up_s": s,
         "recovery_s": s - 1}
        for s, rate in ((4.0, 20.0), (9.0, 100.0), (5.0, 300.0))
    ]
    (row,) = faults.summary(rounds)  # At 100 steps a second: half of the time is lost.
    assert row == ["kill learner", "3", "2.5", "4.5", "5.0", "9.0", "4.0", "8.0"]


@pytest.fixture
def campaign(tmp_path):
    made = faults.Campaign(str(tmp_path), 1)
    yield made
    made.end()


@pytest.mark.slow
def test_campaign_a_learner_and_an_actor_killed(campaign):
    killed = campaign.round(faults.Fault(faults.KILL, telemetry.LEARNER, 0.0))
    assert killed["held_up_s"] > 1 and faults.lost([killed])[0] > 1
    assert "the learner was ended by SIGKILL" in campaign.run.output()
    campaign.round(faults.Fault(faults.KILL, "actor_2", 0.0))
    assert "actor_2 was ended by SIGKILL" in campaign.run.output()
    campaign.round(faults.Fault(faults.KILL, "evaluator", 0.0))
    campaign.round(faults.Fault(faults.STOP, "evaluator", 3.0))


@pytest.mark.slow
def test_campaign_no_folder_for_logs_for_a_while(campaign):
    for victim in (telemetry.LEARNER, telemetry.BROADCASTER, "actor_1"):
        campaign.round(faults.Fault(faults.FOLDER, victim, 24.0))
        with open(f"{campaign.run.folder}/stdout/{victim}.log", encoding="utf-8") as file:
            text = file.read()
        assert "Cannot write logs to" in text and "waiting up to 60 s" in text
        assert f"{victim} was ended by SIGKILL" in campaign.run.output()


@pytest.mark.slow
def test_campaign_a_process_that_dies_unasked_is_no_survival(campaign):
    (process,) = [p for name, p in campaign.run.processes().items() if name == "actor_1"]
    original = campaign._do

    def also_kill(fault, victim):
        process.kill()
        original(fault, victim)

    campaign._do = also_kill
    with pytest.raises(errors.UserError, match="actor_1 died, although nobody killed it"):
        campaign.round(faults.Fault(faults.STOP, telemetry.BROADCASTER, 0.5))


@pytest.mark.slow
def test_campaign_no_room_on_the_disk_for_a_while(campaign):
    one = campaign.round(faults.Fault(faults.DISK, telemetry.LEARNER, 3.0))
    assert one["held_up_s"] >= 3
    campaign.round(faults.Fault(faults.DISK, telemetry.BROADCASTER, 1.0))
    for name in ("learner", "broadcaster"):
        with open(f"{campaign.run.folder}/stdout/{name}.log", encoding="utf-8") as file:
            text = file.read()
        assert "Traceback" not in text, text


@pytest.mark.slow
def test_campaign_every_pair_of_fault_and_victim(campaign):
    for number in range(len(faults.KINDS) * len(faults.VICTIMS)):
        campaign.round(faults.draw(np.random.default_rng(number), number))


def write_log(folder, process, filename, **columns):
    path = folder / process / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ["seconds", "unix_time", *columns]
    rows = zip(*([range(len(v)) for v in list(columns.values())[:1]] * 2), *columns.values(),
               strict=True)
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def test_logs_that_go_back_are_found(tmp_path):
    write_log(tmp_path, "actor_1", telemetry.PHASES_CSV, actor_steps=[5, 9], model_version=[1, 4])
    write_log(tmp_path, "broadcaster", telemetry.UPDATES_CSV, model_version=[1, 2, 5])
    (tmp_path / "stdout").mkdir()
    assert checks.logs(str(tmp_path)) == 5
    known = checks.beginnings(str(tmp_path), {})
    assert len(known) == 2 and checks.beginnings(str(tmp_path), known) == known
    path = tmp_path / "actor_1" / telemetry.PHASES_CSV
    whole = path.read_text().splitlines()
    for rest, words in (([whole[0], whole[2]], "its first rows"), (whole[:1], "all its rows")):
        path.write_text("\n".join(rest) + "\n")
        with pytest.raises(errors.UserError, match=f"lost {words}"):
            checks.beginnings(str(tmp_path), known)
    write_log(tmp_path, "broadcaster", telemetry.UPDATES_CSV, model_version=[1, 5, 2])
    with pytest.raises(errors.UserError, match="model_version goes back from 5 to 2 in row 3"):
        checks.logs(str(tmp_path))
    write_log(tmp_path, "broadcaster", telemetry.UPDATES_CSV, model_version=[1, 2])
    write_log(tmp_path, "actor_1", telemetry.PHASES_CSV, actor_steps=[5, 9], model_version=[1, 4])
    for field in ("push_snapshot_s", "push_insert_s", "checkpoint_s"):
        write_log(tmp_path, "learner", telemetry.TRAIN_CSV, learner_steps=[1, 2], **{field: [2, 1]})
        with pytest.raises(errors.UserError, match=f"{field} goes back from 2 to 1 in row 2"):
            checks.logs(str(tmp_path))


def test_replay_items_that_are_not_whole_are_found(monkeypatch):
    port = ports.free_port()
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", port=port, min_replay_size=1, replay_table_max_times_sampled=0
    )
    layout = replay.Layout((4,), False, 1, True)
    server = serving.start_server(config, serving.make_tables(config, layout, prioritized=False))
    connection = wire.Connection(config)
    check = checks.ReplayCheck(config)
    observation = np.zeros(4, np.float32)

    def insert(reward=1.0 + config.discount, discount=config.discount, action=1.0):
        # An actor does the same.
        writer = transition_writer.TransitionWriter(
            connection.client, config.replay_table_name, layout, check=connection.status
        )
        writer.write(replay.Transition(observation, action, reward, discount, observation))
        writer.flush(10.0)

    try:
        insert()
        check()
        connection.client.reset(config.replay_table_name)
        insert(discount=0.123)
        with pytest.raises(errors.UserError, match="discount"):
            check()
        connection.client.reset(config.replay_table_name)
        insert(reward=1.0, discount=0.0)  # The end of an episode cuts the sum short.
        check()
        connection.client.reset(config.replay_table_name)
        insert(reward=1.0)
        with pytest.raises(errors.UserError, match="reward .* which belong to different steps"):
            check()
        connection.client.reset(config.replay_table_name)
        with monkeypatch.context() as patch:  # Actors refuse to send it.
            patch.setattr(replay.Layout, "require_finite", lambda *_: None)
            insert(reward=np.nan)
        with pytest.raises(errors.UserError, match="NaN"):
            check()
        connection.client.reset(config.replay_table_name)
        insert(action=0.5)
        with pytest.raises(errors.UserError, match="action"):
            check()
    finally:
        server.stop()


def test_main_report(tmp_path, monkeypatch, capsys):
    class Quick:
        def __init__(self, folder, seed):
            self.rounds = 0

        def round(self):
            self.rounds += 1
            return {"kind": "kill", "victim": "actor_1", "seconds": 0.0, "group": "kill actor",
                    "rate": 1.0, "steps": 1.0, "held_up_s": 2.0, "recovery_s": 2.0}

        def end(self):
            pass

    monkeypatch.setattr(faults, "Campaign", Quick)
    faults.main(["--rounds", "3", "--out", str(tmp_path)])
    assert "3 of 3 faults survived" in capsys.readouterr().out
    record = json.loads((tmp_path / "faults.json").read_text())
    assert len(record["rounds"]) == 3

    def fail(self):
        raise errors.UserError("learner going on did not happen within 30 s.")

    monkeypatch.setattr(Quick, "round", fail)
    with pytest.raises(errors.UserError, match="0 of 3 rounds survived. learner going on"):
        faults.main(["--rounds", "3"])
