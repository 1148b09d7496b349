"""Workers end with the process that they work for, whatever state their pool is in."""

import multiprocessing
import time

import psutil
import pytest

from baseline.study import parallel


@pytest.mark.parametrize("shut_down", [False, True])
def test_an_interrupt_ends_workers_and_spares_other_children(tmp_path, shut_down):
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=time.sleep, args=(600,))
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt), parallel.workers(1, patience_s=2.0) as pool:
            pool.submit(time.sleep, 0).result()
            pool.submit(time.sleep, 600)
            pool.submit((tmp_path / "a file").touch)
            (worker,) = [child for child in multiprocessing.active_children() if child != other]
            if shut_down:  # From here on the executor does not know its workers any more.
                pool.shutdown(wait=False)
            raise KeyboardInterrupt
        assert not psutil.pid_exists(worker.pid)
        assert not list(tmp_path.iterdir())
        assert other.is_alive()
    finally:
        other.kill()
        other.join()
