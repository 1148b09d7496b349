"""Writes agents in the zoo's layout: a folder is there whole, or not at all."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import random
import shutil
import tempfile
import time

from actorQ.core import errors

_ATTEMPTS = 10
_ASIDE_S = 0.02  # Longest wait between two of them.
_DRAFT = ".unfinished-"
_ABANDONED_S = 3600.0


@contextlib.contextmanager
def whole_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives an empty folder that takes `target`'s place, and its content's, once all is written.

    If it is not, `target` stays as it was.

    Raises:
      errors.UserError: the folder cannot be written.
    """
    draft = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{_DRAFT}*"):
            with contextlib.suppress(FileNotFoundError):  # Of a process that just got done.
                if time.time() - left.stat().st_mtime > _ABANDONED_S:  # Its process was killed.
                    shutil.rmtree(left, ignore_errors=True)
        # Beside the target, since a folder can be renamed within one disk only; the name is not
        # that of any agent.
        draft = pathlib.Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
        draft.chmod(0o755)
        yield draft
        _replace(draft, target)
    except OSError as error:
        raise errors.UserError(f"Cannot write {target}: {error.strerror or error}.") from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: pathlib.Path, target: pathlib.Path) -> None:
    replaced = []
    for attempt in range(_ATTEMPTS):
        old = draft.with_name(f"{draft.name}-old-{attempt}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(target, old)
            replaced.append(old)
        try:
            os.rename(draft, target)
            break
        except OSError:  # Another process was quicker; its agent is replaced as well.
            if attempt == _ATTEMPTS - 1:
                with contextlib.suppress(OSError, IndexError):  # What was there goes back.
                    os.rename(replaced.pop(), target)
                raise
            time.sleep(random.uniform(0.0, _ASIDE_S))  # Out of step with the others.
    for old in replaced:  # Only now: a process may be killed before it is through.
        shutil.rmtree(old, ignore_errors=True)
