"""A job as a page shows it: one line and its parts, as plain JSON of bounded size (docs/formats/page.md).

A process that reaches the job's storage makes a snapshot; the page that shows it needs no storage.
Nothing here raises for storage that cannot be read: each part says it in its own place.
"""
