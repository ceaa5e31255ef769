"""The static site: the bench, decoding and the attention viewer in the visitor's own browser, without a server.

``python -m core site --out site`` writes it. It has the components and scripts of the page; a Web Worker answers what
the server's functions answer there. The worker runs the graphs of ``core.graphs`` in ONNX Runtime, so that model, loss
and optimizer are those of the program.
"""
