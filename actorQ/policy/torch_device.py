"""The device that torch computes on, where a GPU is asked for."""

from absl import logging
import torch


def failure() -> str:
    """Returns why torch cannot compute on a GPU here, or "" if it can.

    That torch sees a GPU does not mean that it has kernels for it: PyPI's builds for CUDA 13 begin
    at compute capability 7.5, so that a V100's (7.0) first operation fails.
    """
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except torch.cuda.OutOfMemoryError:  # It could, and whoever asks for more will be told.
        return ""
    except RuntimeError as error:  # torch.AcceleratorError is one, too.
        return (
            f"torch {torch.__version__} cannot compute on this GPU "
            f"({str(error).partition(chr(10))[0]})"
        )
    return ""


def choose(what: str) -> str:
    """Returns "cuda" if torch can compute on the GPU, else "cpu", and says why.

    Args:
      what: goes on with the CPU otherwise; for the log.
    """
    why = failure()
    if why:
        logging.warning("%s: %s goes on with the CPU.", why, what)
    return "cpu" if why else "cuda"
