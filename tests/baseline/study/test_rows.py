"""Tests `rows`: rows survive the file, other writers, and writers that were killed."""

import dataclasses
import multiprocessing
import pathlib

import numpy as np
import pytest

from actorQ.core import errors
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from tests.baseline import trained_rows

RESULTS = pathlib.Path(__file__).resolve().parents[3] / "baseline/results"
WEIGHTS = {
    "weight_min": -1.5,
    "weight_max": 2.25,
    "weight_range": 3.75,
    "weight_width": 0.4,
    "bytes": 4612,
    "seconds": 1.25,
    "commit": "abc",
}
KEY = rows_lib.Key("ppo", "CartPole-v1", "8", "weights", "paper", "nearest", "0,2,4", 6)


def make_row(returns=(500.0, 499.0, 12.5, 3.0, 500.0, 500.0), fp32=None, note="", **key):
    key = KEY._replace(episodes=len(returns), **key)
    return rows_lib.measured(key, returns, fp32, note=note, **WEIGHTS)


def test_append_and_read_keep_every_column(tmp_path):
    path = str(tmp_path / "new" / "folder" / "ptq.csv")
    rows = [
        make_row(bits="fp32", note='a "quoted", note'),
        make_row(returns=(1.0, 2.0, 3.0), fp32=(2.0, 3.0, 5.0)),
    ]
    for row in rows:
        rows_lib.append(path, row)
    lines = open(path, encoding="utf-8").read().splitlines()
    assert lines[0].split(",") == list(rows_lib.columns())
    assert len(lines) == 3
    for got, expected in zip(rows_lib.read(path), rows, strict=True):
        for name in rows_lib.columns():
            value = getattr(expected, name)
            assert getattr(got, name) == (
                pytest.approx(value, rel=1e-7) if isinstance(value, (float, tuple)) else value
            ), name


def test_columns_are_those_of_the_design():
    assert rows_lib.columns() == tuple(
        "algo env bits scheme granularity rounding seeds episodes mean std error error_low "
        "error_high weight_min weight_max weight_range weight_width bytes seconds note commit "
        "returns".split()
    )


def test_measured_computes_sample_std_and_error():
    row = make_row(returns=(1.0, 3.0), fp32=(4.0, 6.0))
    assert (row.mean, row.error) == (2.0, pytest.approx(0.6))
    assert row.std == pytest.approx(2.0**0.5)
    assert row.error_low <= row.error <= row.error_high


def test_measured_returns_that_were_in_a_file_are_equal_to_the_same_returns(tmp_path):
    path = str(tmp_path / "ptq.csv")
    returns = np.random.default_rng(0).normal(100, 7, size=20)
    rows_lib.append(path, make_row(returns=returns, bits="fp32"))
    (stored,) = rows_lib.read(path)
    for fp32 in (stored.returns, returns):
        row = make_row(returns=returns, fp32=fp32)
        assert (row.error, row.error_low, row.error_high) == (0.0, 0.0, 0.0)
        assert row.returns == stored.returns


def test_measured_negative_fp32_mean_loss_is_positive():
    assert make_row(returns=(-150.0, -150.0), fp32=(-100.0, -100.0)).error == pytest.approx(0.5)


def test_measured_fp32_mean_zero_has_no_error_and_says_so():
    row = make_row(returns=(1.0, 2.0), fp32=(1.0, -1.0), note="slow")
    assert (row.error, row.error_low, row.error_high) == (None, None, None)
    assert row.note == "slow; no interval of E: the fp32 mean is zero"


def test_measured_single_episode_has_no_interval():
    row = make_row(returns=(1.0,), fp32=(2.0,))
    assert (row.std, row.error, row.error_low) == (0.0, 0.5, None)


def test_read_takes_last_row_of_equal_key_in_order_of_first_appearance(tmp_path):
    path = str(tmp_path / "ptq.csv")
    for bits, value in (("8", 1.0), ("4", 2.0), ("8", 3.0)):
        rows_lib.append(path, make_row(returns=(value, value), bits=bits))
    assert [(row.bits, row.mean) for row in rows_lib.read(path)] == [("8", 3.0), ("4", 2.0)]


def test_note_with_line_breaks_stays_one_line(tmp_path):
    path = str(tmp_path / "ptq.csv")
    rows_lib.append(path, make_row(note="one\ntwo\r\n three"))
    assert [row.note for row in rows_lib.read(path)] == ["one two three"]


@pytest.mark.parametrize("cut", (1, 40, 100))
def test_half_written_last_line_is_left_out_and_later_rows_are_read(tmp_path, cut):
    path = tmp_path / "ptq.csv"
    rows_lib.append(str(path), make_row(bits="8"))
    rows_lib.append(str(path), make_row(bits="6"))
    path.write_bytes(path.read_bytes()[:-cut])
    assert [row.bits for row in rows_lib.read(str(path))] == ["8"]
    rows_lib.append(str(path), make_row(bits="4"))
    assert [row.bits for row in rows_lib.read(str(path))] == ["8", "4"]


def test_half_written_header_is_replaced(tmp_path):
    path = tmp_path / "ptq.csv"
    path.write_text("algo,env,bi")
    rows_lib.append(str(path), make_row())
    assert len(rows_lib.read(str(path))) == 1


def test_read_cut_short_never_fails_wherever_it_is_cut(tmp_path):
    path = tmp_path / "ptq.csv"
    for bits in ("8", "6"):
        rows_lib.append(str(path), make_row(bits=bits, note="ü, ö"))
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    for end in range(header, len(content), 7):
        path.write_bytes(content[:end])
        assert len(rows_lib.read(str(path))) == content[header:end].count(b"\n")


@pytest.mark.parametrize(
    "old, new, reason",
    (
        (",8,", ",eight,", "bits is 'eight'"),
        (",8,", ",33,", "bits is '33'"),
        (",weights,", ",wheights,", "scheme is 'wheights'"),
        (",6,", ",6.5,", "episodes is '6.5'"),
        (",6,", ",7,", "7 episodes, but 6 returns"),
        (" 499 ", " 49x ", "returns is '500 49x"),
        (" 499 ", " nan ", "a number is not finite"),
        ("paper,", "", "21 cells instead of 22"),
        ('"0,2,4"', '"0,2,4', ""),
    ),
)
def test_read_damaged_line_is_named_with_remedy(tmp_path, old, new, reason):
    path = tmp_path / "ptq.csv"
    rows_lib.append(str(path), make_row(bits="16"))
    rows_lib.append(str(path), make_row())
    header, first, second = path.read_text().splitlines()
    assert old in second
    path.write_text("\n".join((header, first, second.replace(old, new, 1), "")))
    with pytest.raises(errors.UserError, match=f"line 3 is damaged.*{reason}.*delete the line"):
        rows_lib.read(str(path))


def test_other_columns_are_refused_by_reader_and_writer(tmp_path):
    path = tmp_path / "ptq.csv"
    path.write_text("algo,env,bits,colour\nppo,CartPole-v1,8,red\n")
    for use in (rows_lib.read, lambda name: rows_lib.append(name, make_row())):
        with pytest.raises(errors.UserError, match="lacking: scheme.*unknown: colour.*again"):
            use(str(path))


def test_read_missing_or_empty_file_names_the_command(tmp_path):
    with pytest.raises(errors.UserError, match="baseline.ptq ALGO ENV BITS"):
        rows_lib.read(str(tmp_path / "none.csv"))
    (tmp_path / "empty.csv").touch()
    with pytest.raises(errors.UserError, match="empty"):
        rows_lib.read(str(tmp_path / "empty.csv"))


def test_append_where_nothing_can_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.UserError, match="Cannot write"):
        rows_lib.append(str(tmp_path / "file" / "ptq.csv"), make_row())


def test_files_from_spreadsheets_are_read(tmp_path):
    path = tmp_path / "ptq.csv"
    rows_lib.append(str(path), make_row())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert len(rows_lib.read(str(path))) == 1
    rows_lib.append(str(path), make_row(bits="4"))
    assert len(rows_lib.read(str(path))) == 2


def test_rows_of_many_episodes_are_read(tmp_path):
    path = str(tmp_path / "ptq.csv")
    returns = np.random.default_rng(0).normal(size=30_000)
    rows_lib.append(path, make_row(returns=returns))
    assert rows_lib.read(path)[0].returns == pytest.approx(tuple(returns), rel=1e-6)


def test_read_files_are_as_one(tmp_path):
    first, second = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    rows_lib.append(first, make_row(returns=(1.0, 1.0)))
    rows_lib.append(first, make_row(bits="4"))
    rows_lib.append(second, make_row(returns=(2.0, 2.0)))
    rows = rows_lib.read_files([first, second])
    assert [(row.bits, row.mean) for row in rows] == [("8", 2.0), ("4", make_row().mean)]


def test_files_of_two_agents_of_one_name_are_refused(tmp_path):
    first, second, third = (str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv"))
    row = make_row(bits="fp32")
    rows_lib.append(first, row)
    rows_lib.append(second, dataclasses.replace(row, seeds="1"))
    rows_lib.append(third, dataclasses.replace(row, weight_max=row.weight_max + 1))
    assert len(rows_lib.read_files([first, second])) == 2
    with pytest.raises(errors.UserError, match="a.csv and .*c.csv hold rows of two agents"):
        rows_lib.read_files([first, second, third])


def test_find_compares_columns():
    rows = [make_row(bits="8"), make_row(bits="4"), make_row(bits="8", algo="a2c")]
    assert rows_lib.find(rows, bits="8", algo="ppo") == rows[:1]
    assert rows_lib.find(rows, bits="2") == []


def test_seed_returns_are_seed_major():
    parts = make_row().seed_returns
    assert [list(part) for part in parts] == [[500.0, 499.0], [12.5, 3.0], [500.0, 500.0]]


def test_width_order_sorts_from_fp32_to_2():
    mixed = ["2", "bf16", "32", "14", "fp16", "fp32", "16"]
    assert sorted(mixed, key=rows_lib.width_order) == [
        "fp32", "32", "16", "bf16", "fp16", "14", "2",
    ]


@pytest.mark.parametrize("bits", ("1", "33", "", "int8", "8.0", "-8", "²"))
def test_row_of_impossible_width_is_refused(bits):
    with pytest.raises(ValueError, match="bits is"):
        make_row(bits=bits)


def test_row_with_returns_that_are_not_finite_is_refused():
    with pytest.raises(ValueError, match="finite"):
        dataclasses.replace(make_row(returns=(1.0, 2.0)), returns=(1.0, float("nan")))


def _append_many(path, worker):
    for width in range(2, 22):
        rows_lib.append(path, make_row(bits=str(width), env=f"Env{worker}-v0"))


def test_append_from_several_processes_loses_nothing(tmp_path):
    path = str(tmp_path / "ptq.csv")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(path, i)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len({row.key for row in rows_lib.read(path)}) == 60


def test_read_missing_file_names_the_maker_of_its_kind(tmp_path):
    path = str(tmp_path / "qat.csv")
    for read in (rows_lib.read, lambda name, kind: rows_lib.read_files([name], kind)):
        with pytest.raises(errors.UserError, match="qat.csv: baseline/qat_benchmark.sh ALGO ENV"):
            read(path, qat_rows.TrainedRow)


def test_has_columns_knows_kinds(tmp_path):
    path = str(tmp_path / "ptq.csv")
    assert not rows_lib.has_columns(path, rows_lib.Row)
    rows_lib.append(path, make_row())
    assert rows_lib.has_columns(path, rows_lib.Row)
    wider = dataclasses.make_dataclass("Wider", ["more"], bases=(rows_lib.Row,), frozen=True)
    assert not rows_lib.has_columns(path, wider)


def test_older_files_are_read_and_get_the_later_columns_with_a_new_row(tmp_path):
    path = tmp_path / "qat.csv"
    rows = [trained_rows.make_row("qat", bits, [2.0, 2.0]) for bits in ("8", "4")]
    for row in rows:
        rows_lib.append(str(path), row)
    lines = path.read_text().splitlines()
    assert lines[0].endswith(",hyperparams,widths") and lines[1].endswith(",,")
    older = [lines[0].removesuffix(",widths"), *(line[:-1] for line in lines[1:])]
    for end in ("\n", "\r\n"):
        path.write_bytes("".join(line + end for line in older).encode())
        assert rows_lib.read(str(path), qat_rows.TrainedRow) == rows
        assert rows_lib.has_columns(str(path), qat_rows.TrainedRow)
        assert not rows_lib.has_columns(str(path), rows_lib.Row)

        more = trained_rows.make_row("qat", "4", [2.0, 2.0], widths="last:8")
        rows_lib.append(str(path), more)

        assert path.read_text().splitlines()[:3] == lines
        assert rows_lib.read(str(path), qat_rows.TrainedRow) == [*rows, more]


def test_committed_rows_of_trainings_are_read():
    rows = rows_lib.read(str(RESULTS / "qat" / "qat.csv"), qat_rows.TrainedRow)
    assert len(rows) > 100 and {row.widths for row in rows} == {""}
