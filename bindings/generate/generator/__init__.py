"""The parts of bindings/generate, one kind of output each."""
