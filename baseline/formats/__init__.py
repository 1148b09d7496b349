"""Files that policies are exported to, and what plays them: ONNX, TFLite, TorchScript.

Imports `agents` and what it imports.
"""
