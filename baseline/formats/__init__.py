"""Files that policies are exported to: ONNX, TFLite, TorchScript, native. `deploy` has players.

Imports `agents` and what it imports.
"""
