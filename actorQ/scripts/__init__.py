"""Programs that draw and tabulate the logs of runs; `experiments` holds what they compute."""
