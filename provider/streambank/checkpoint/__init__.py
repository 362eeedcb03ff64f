"""What Spark wrote: the grammar of a checkpoint directory, its logs, states and closures. Never writes one.

* `grammar`: what each path is
* `logs`, `operators`, `compactible`: what the small files say
* `state`: which files make a version of a state store; `schema`: what its rows are made of
* `closure`: exactly the files that Spark needs to go on after a batch
* `reader`: all of it over a store; the one door for other packages
* `paths`: what has to be rewritten in a copy

docs/formats/checkpoint.md describes the formats and where each claim was seen.
"""
