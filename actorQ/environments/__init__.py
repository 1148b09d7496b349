"""The tasks that agents act in, every suite behind one interface. Imports `core`."""
