"""The device that torch computes on, where a GPU is asked for."""

from absl import logging
import torch


def choose(what: str) -> str:
    """Returns "cuda" if torch can compute on the GPU, else "cpu", and says why.

    That torch sees a GPU does not mean that it has kernels for it: PyPI's builds for CUDA 13 begin
    at compute capability 7.5, so that a V100's (7.0) first operation fails.

    Args:
      what: goes on with the CPU otherwise; for the log.
    """
    if not torch.cuda.is_available():
        logging.warning("torch sees no GPU: %s goes on with the CPU.", what)
        return "cpu"
    try:
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError as error:  # torch.AcceleratorError is one, too.
        logging.warning(
            "torch %s cannot compute on this GPU (%s): %s goes on with the CPU.",
            torch.__version__, str(error).partition("\n")[0], what,
        )
        return "cpu"
    return "cuda"
