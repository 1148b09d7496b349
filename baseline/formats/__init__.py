"""Files that policies are exported to: ONNX, TFLite, TorchScript. `deploy.run_policy` plays them.

Imports `agents` and what it imports.
"""
