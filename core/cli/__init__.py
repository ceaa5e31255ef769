"""The commands of ``python -m core``: one module each, with ``add_arguments(parser)`` and ``run(options)``."""

COMMANDS = {
    "presets": "list the presets, the quickest to train first",
    "runs": "list the runs",
    "rename": "give a run another title",
    "train": "train a preset and save it as a run",
    "resume": "continue a stopped or interrupted run, or extend one to more steps",
    "evaluate": "evaluate a run on held-out test sequences",
    "decode": "decode one input with a run",
    "translate": "decode every line of standard input with a run",
    "analyze": "score every attention head of a run, and ablate each of them",
    "compare": "compare runs of one task on the same held-out inputs",
    "report": "evaluate a run and write a report on it",
    "perplexity": "compare the perplexity of a run that models text with n-gram models",
    "doctor": "diagnose a run or a preset: find bugs that raise no error",
    "lesson": "train the correct and the broken run of a lesson; without a name, list the lessons",
    "describe": "show the model of a preset: parameters, shapes and memory",
    "data": "inspect a file of your own pairs and write a preset that learns them",
    "corpus": "make translation pairs from the LibreOffice Help in two languages",
    "export": "export a run as one file, a zip, a folder or an ONNX model",
    "import": "import a run that was exported, after checking the whole file",
    "push": "push a run to the Hugging Face Hub",
    "pull": "pull a run from the Hugging Face Hub, after checking every file",
    "bench": "run a benchmark on this machine",
}
"""Every command with its one-line summary, in the order of ``--help``."""
