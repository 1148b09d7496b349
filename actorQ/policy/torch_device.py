"""Chooses the device that torch computes on, where a GPU is asked for."""

from absl import logging
import torch


def failure() -> str:
    """Returns why torch cannot compute on a GPU here, or "" if it can.

    torch may see a GPU and have no kernels for it. PyPI's builds for CUDA 13 begin at compute
    capability 7.5, so that the first operation on a V100 (7.0) fails.
    """
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except torch.cuda.OutOfMemoryError:  # It can compute; a caller who needs more memory is told.
        return ""
    except RuntimeError as error:  # This includes torch.AcceleratorError.
        return (
            f"torch {torch.__version__} cannot compute on this GPU "
            f"({str(error).partition(chr(10))[0]})"
        )
    return ""


def choose(what: str) -> str:
    """Returns "cuda" if torch can compute on the GPU, else "cpu", and says why.

    Args:
      what: Name, for the log, of the part that goes on with the CPU otherwise.
    """
    why = failure()
    if why:
        logging.warning("%s: %s goes on with the CPU.", why, what)
    return "cpu" if why else "cuda"
