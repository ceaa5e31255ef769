"""Graphs of models and training steps that run without PyTorch, traced from the code that trains and decodes here.

``torch.export`` follows one call and writes down its tensor operations. Weights are inputs of a graph, so a graph
belongs to an architecture, not to a run. ``Graph.to_onnx`` makes an ONNX model of it, for ONNX Runtime in a program or
in a browser. Nothing is implemented twice: models, loss and optimizers are those of ``core.models`` and
``core.training``.
"""

from core.graphs.decoding import start_graph, token_graph
from core.graphs.forward import forward_graph
from core.graphs.graph import Graph
from core.graphs.removals import removal_graph
from core.graphs.training_step import training_step_graph

__all__ = ["Graph", "forward_graph", "removal_graph", "start_graph", "token_graph", "training_step_graph"]
