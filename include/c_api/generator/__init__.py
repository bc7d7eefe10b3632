"""The parts of include/c_api/generate.py, one kind of output each."""
