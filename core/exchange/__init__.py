"""Runs that go out and come in: as one file, as a package with all it needs, over the Hugging Face Hub, as ONNX."""
