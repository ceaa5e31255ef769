"""The commands of ``python -m core``: one module each, with ``add_arguments(parser)`` and ``run(options)``."""

COMMANDS = {
    "presets": "list the presets, the quickest to train first; with a name, print one with all its keys",
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
    "import-model": "import a model of another program: a Hugging Face folder, or a state dict of nn.Transformer",
    "push": "push a run to the Hugging Face Hub",
    "pull": "pull a run from the Hugging Face Hub, after checking every file",
    "bench": "run a benchmark on this machine",
}
"""Every command with its one-line summary, in the order of ``--help``."""

EXAMPLES = {
    "presets": ("", "digits-reversal", "--times"),
    "runs": ("", "--json"),
    "rename": ('first "Half the steps, with dropout"',),
    "train": (
        "--preset digits-reversal --run first",
        "--preset digits-reversal --set training.steps=500 --set model.dropout=0.1",
        "--preset digits-reversal --run group --seeds 3",
    ),
    "resume": ("--run first", "--run first --set training.steps=2000"),
    "evaluate": (
        "--run digits-reversal-shipped --sequences 1000",
        "--run digits-reversal-shipped --strategy beam --beam-size 4",
    ),
    "decode": (
        '--run digits-reversal-shipped "4 8 2 9"',
        '--run digits-reversal-shipped "4 8 2 9" --ablate cross.2.1',
    ),
    "translate": ("--run first < in.txt > out.txt", "--run first --json < in.txt > out.json"),
    "analyze": (
        "--run digits-reversal-shipped --sequences 500",
        '--run digits-reversal-shipped --why "4 8 2 9" --step 2',
        "--run first --health --csv health.csv",
    ),
    "compare": ("--runs first,group --sequences 1000", "--runs first,group --lengths 8-12 --per-length 20"),
    "report": ("--run digits-reversal-shipped --out report",),
    "perplexity": ("--run first --order 3",),
    "doctor": ("--run digits-reversal-shipped", "--preset tiny --steps 100"),
    "lesson": ("", "no-causal-mask --out results"),
    "describe": ("--preset digits-reversal --shapes",),
    "data": ("pairs.tsv --out my-pairs.yaml", "sources.txt --targets targets.txt --tokens subword"),
    "corpus": ("de --out help-de.tsv",),
    "export": (
        "--run digits-reversal-shipped --out model.safetensors",
        "--run digits-reversal-shipped --out model.zip",
    ),
    "import": ("model.zip --run imported",),
    "import-model": (
        "opus-mt-en-de --run opus --pairs pairs.tsv",
        "model.pt --propose model.yaml",
        "model.pt --mapping model.yaml --run mine",
    ),
    "push": ("--run first USER/NAME",),
    "pull": ("USER/NAME --run pulled",),
    "bench": ("step", "solve --seeds 1 --no-baseline"),
}
"""Arguments of every command that its ``--help`` shows as examples."""
