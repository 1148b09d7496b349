"""Asks ONNX Runtime's profiler which kernels compute a model."""

import collections
import json
import os
import pathlib
import tempfile

import numpy as np
import onnxruntime

from baseline.formats import names


def kernels(content: bytes, observations: np.ndarray) -> dict[str, int]:
    """Returns the operators that the runtime executes for one batch, and how often.

    They are those that its optimizer leaves, which fuses and replaces nodes.

    Args:
      content: The model's file.
      observations: [B, ...], as the model takes them.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = os.path.join(folder, "profile")
        session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        session.run(None, {names.OBSERVATION: observations})
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    return dict(
        collections.Counter(
            event["args"]["op_name"]
            for event in events
            if event["cat"] == "Node" and event["name"].endswith("_kernel_time")
        )
    )
