"""Upgrades of a running job: new code is rehearsed beside it, takes its place, and goes again where it fails.

* `upgrade`: what is done, step by step; `plan`: what is new, and whether there is a way back
* `rehearsal`: the new code on a copy; `declared`: the way out of what was chosen
* `record`: what an upgrade remembers, by which an interrupted one is finished
* `watch`: whether the new code gets on; `undo`: the way back
"""
