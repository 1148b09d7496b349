"""Loads the agents that rows are of, and refuses to mix the rows of two agents of one name."""

from collections.abc import Iterable
import hashlib
import json
import math
import pathlib
import types
from typing import TYPE_CHECKING

from actorQ.core import errors
from actorQ.core import files
from baseline.agents import agent as agent_lib
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.quantization import schemes
from baseline.quantization import weight_statistics
from baseline.study import rows as rows_lib

if TYPE_CHECKING:
    from baseline.study import measuring

AGENTS_FILENAME = "agents.json"  # Checksums of the agents that have rows.
_ROUNDED = 1e-7  # Relative rounding of the numbers in a row.


def load_agent(algo: str, env: str, folder: str) -> agent_lib.Agent:
    """Loads an agent of the zoo's layout, or of an ActorQ run (whose tasks have a comma).

    Raises:
      errors.UserError: see `finding.load` and `actorq.load`.
    """
    return _module(algo, env).load(algo, env, folder)


def agent_path(algo: str, env: str, folder: str) -> pathlib.Path:
    """Returns an agent's file.

    Raises:
      errors.UserError: there is none.
    """
    return _module(algo, env).find(algo, env, folder)


def _module(algo: str, env: str) -> types.ModuleType:
    if "," in env or algo == "d4pg":
        from baseline.agents import actorq

        return actorq
    return finding


def check_same_agent(request: "measuring.Request", agent_file: pathlib.Path) -> None:
    """Refuses to mix the rows of two agents of one name; notes the first one's checksum.

    Raises:
      errors.UserError: the folder's rows belong to another file, or it cannot be written.
    """
    path = pathlib.Path(request.out, AGENTS_FILENAME)
    name = f"{request.algo} {request.env}"
    try:
        checksum, of_zip = _checksums(agent_file, request.env)
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(path.parent):  # Sweeps measure several agents at once.
            known = _read_agents(path)
            # Earlier versions noted the checksum of the zip alone.
            same = known.get(name) in (checksum, of_zip)
            if not same:
                rows = _rows_of_agent(request)
                same = not rows or (name not in known and _weigh_as(rows, request, agent_file))
                if same:
                    text = json.dumps({**known, name: checksum}, indent=1, sort_keys=True)
                    files.write(path, text + "\n")
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror or error}.") from None
    if not same:
        raise errors.UserError(
            f"{request.out} holds rows of another agent {name} than {agent_file}: give another "
            "--out, or remove the folder."
        )


def _checksums(agent_file: pathlib.Path, env: str) -> tuple[str, str]:
    """Returns the checksum of an agent with its settings, and of its file alone."""
    digest = hashlib.sha256(agent_file.read_bytes())
    of_file = digest.hexdigest()[:16]
    settings = agent_file.parent / zoo_files.file_name(env)
    for name in (*zoo_files.SETTINGS_FILENAMES, zoo_files.NORMALIZATION, schemes.FILENAME):
        if (settings / name).exists():
            digest.update(name.encode())
            digest.update((settings / name).read_bytes())
    return digest.hexdigest()[:16], of_file


def _rows_of_agent(request: "measuring.Request") -> list[rows_lib.Row]:
    rows = [*request.full_precision.rows().values(), *request.rows().values()]
    return [row for row in rows if (row.algo, row.env) == (request.algo, request.env)]


def _weigh_as(
    rows: Iterable[rows_lib.Row], request: "measuring.Request", agent_file: pathlib.Path
) -> bool:
    """Returns whether an agent's weights have the range that full-precision rows noted.

    It is for rows that came without agents.json; `rows.read_files` tells agents apart so as well.
    """
    full = [row for row in rows if row.bits == schemes.FP32]
    if not full:
        return True
    module = _module(request.algo, request.env)
    load = finding.load_file if module is finding else module.load
    agent = load(request.algo, request.env, agent_file)
    spread = weight_statistics.spread(agent.weights())
    return all(
        math.isclose(row.weight_min, spread.minimum, rel_tol=_ROUNDED)
        and math.isclose(row.weight_max, spread.maximum, rel_tol=_ROUNDED)
        for row in full
    )


def _read_agents(path: pathlib.Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text() or "{}")
        if not isinstance(known, dict):
            raise ValueError
    except FileNotFoundError:
        return {}
    except ValueError:
        raise errors.UserError(f"{path} is damaged: give another --out.") from None
    return known
