"""Means of E by algorithm and method, and what `auto` would have had."""

import dataclasses

import pytest

from actorQ.core import plotting
from baseline.quantization import recipes
from baseline.study import method_plots
from baseline.study import method_rows
from baseline.study import method_tables
from baseline.study import rows as rows_lib
from tests.baseline import sweep_rows


def rows_of(algo, env, **errors):
    """Returns fp32's and minmax's rows, and those of methods whose returns are lower by errors."""
    plain = sweep_rows.make_sweep(algo, env, ("8", "4"), noise=1.0)
    of_methods = []
    for method, (loss, agreement, *group) in errors.items():
        returns = [value - loss for value in plain[0].returns]
        row = rows_lib.measured(
            plain[1].evaluation, returns, plain[0].returns, **sweep_rows.WEIGHTS
        )
        name = method.replace("_", ",").replace("biascorrection", "bias-correction")
        of_methods.append(method_rows.of_method(
            row, method=name, chosen=name, group_size=group[0] if group else 0, states=9,
            agreement=agreement, deviation=None,
        ))
    return plain, of_methods


ALL = {name.replace(",", "_").replace("-", ""): (5.0, 0.5) for name in recipes.CANDIDATES}


def test_means_are_over_agents():
    first, of_first = rows_of("ppo", "A-v1", mse=(10.0, 0.9))
    second, of_second = rows_of("ppo", "B-v1", mse=(20.0, 0.9))
    (table,) = method_tables.tables([*first, *second], [*of_first, *of_second])
    assert (table.algo, table.granularity, table.agents) == ("ppo", "paper", 2)
    cell = table.cells["mse", "8"]
    means = [100 * loss / one[0].mean for loss, one in ((10, first), (20, second))]
    assert 100 * cell.mean.error == pytest.approx(sum(means) / 2, rel=1e-4)
    assert cell.agents == 2
    assert ("minmax", "4") in table.cells and ("mse", "4") not in table.cells
    assert table.methods == ["minmax", "mse"] and table.widths == ["8", "4"]


def test_auto_is_the_candidate_with_the_best_agreement():
    rows, of_methods = rows_of(
        "dqn", "A-v1", **{**ALL, "gptq_biascorrection": (2.0, 0.8), "mse": (1.0, 0.9)}
    )
    (table,) = method_tables.tables(rows, of_methods)
    assert table.cells["auto", "8"] == table.cells["gptq,bias-correction", "8"]
    assert table.methods[-1] == "auto"
    # Without one of the candidates, nobody knows what auto would have chosen.
    (table,) = method_tables.tables(rows, of_methods[1:])
    assert ("auto", "8") not in table.cells


def test_rows_of_other_starts_do_not_count():
    rows, of_methods = rows_of("ppo", "A-v1", mse=(1.0, 0.9))
    other = dataclasses.replace(of_methods[0], seeds="7")
    (table,) = method_tables.tables(rows, [other])
    assert ("mse", "8") not in table.cells


def test_of_several_evaluations_the_longest_counts():
    rows, of_methods = rows_of("ppo", "A-v1", mse=(1.0, 0.9))
    short = sweep_rows.make_sweep("ppo", "A-v1", ("8",), episodes=6)
    expected = method_tables.tables(rows, of_methods)
    for both in ([*rows, *short], [*short, *rows]):
        assert method_tables.tables(both, of_methods) == expected


def test_the_best_is_of_all_agents():
    first, of_first = rows_of("a2c", "A-v1", mse=(3.0, 0.9), gptq=(-9.0, 0.9))
    second, of_second = rows_of("a2c", "B-v1", mse=(2.0, 0.9))
    (table,) = method_tables.tables([*first, *second], [*of_first, *of_second])
    method, cell = method_tables.best(table, "8")
    assert method in ("minmax", "mse") and cell.agents == 2
    text = method_tables.markdown([table])
    assert text.count(" (1 agent)") == 1
    assert "A2C, paper, 8 bits: the limit is 2.31 %." in text


def test_verdicts_name_limits():
    rows, of_methods = rows_of("dqn", "A-v1", mse=(30.0, 0.9))
    rows = [row for row in rows if row.bits != "8"]
    (table,) = method_tables.tables(rows, of_methods)
    first, second = method_tables.verdicts([table])
    assert first.startswith("DQN, paper, 8 bits: the limit is 8.6 %. The best method, mse, has ")
    assert first.endswith("Verdict: not reached, because all of the interval is above it.")
    assert second.startswith("DQN, paper, 4 bits: the limit is 5 %.")
    (one, _) = method_tables.limits(table)
    assert (one.bits, one.limit, one.method) == ("8", 8.6, "mse")
    assert one.cell.mean.low > 0.086


def test_groups_are_lines_of_their_own():
    rows, of_methods = rows_of("ppo", "A-v1", mse=(1.0, 0.9, 16))
    (table,) = method_tables.tables(rows, of_methods)
    assert "mse (groups of 16)" in table.methods


def test_figures_have_a_line_for_each_method(tmp_path):
    rows, of_methods = rows_of("ppo", "A-v1", **ALL, hadamard=(500.0, 0.1))
    found = method_tables.tables(rows, of_methods)
    path = method_plots.draw(str(tmp_path / "methods.png"), found)
    assert (tmp_path / "methods.png").stat().st_size > 20_000 and path.endswith("methods.png")


def test_lines_are_over_all_agents(monkeypatch):
    first, of_first = rows_of("a2c", "A-v1", mse=(3.0, 0.9), gptq=(-9.0, 0.9))
    second, of_second = rows_of("a2c", "B-v1", mse=(2.0, 0.9))
    found = method_tables.tables([*first, *second], [*of_first, *of_second])
    drawn = []
    monkeypatch.setattr(plotting, "save_figure", lambda figure, path: drawn.append(figure))
    method_plots.draw("methods.png", found)
    lines = {line.get_label(): line for ax in drawn[0].axes for line in ax.get_lines()}
    assert "gptq" not in lines  # One of the two agents has it.
    mean = found[0].cells["mse", "8"].mean.error
    assert list(lines["mse"].get_ydata()) == pytest.approx([100 * mean])


def test_rows_are_written_and_read(tmp_path):
    _, of_methods = rows_of("ppo", "A-v1", mse_gptq=(1.0, 0.9))
    path = str(tmp_path / method_rows.CSV_NAME)
    rows_lib.append(path, of_methods[0])
    (found,) = rows_lib.read(path, method_rows.MethodRow)
    assert found.key == of_methods[0].key and found.returns == of_methods[0].returns
    assert (found.chosen, found.states, found.agreement) == ("mse,gptq", 9, 0.9)
    assert found.deviation is None
    with pytest.raises(ValueError, match="method is 'none'"):
        dataclasses.replace(of_methods[0], method="none")
