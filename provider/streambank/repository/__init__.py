"""The repository: where savepoints lie, each described by one sealed manifest.

* `repository`: the folder as a whole, and how a savepoint comes into it
* `header`, `sealed`, `manifest`: what is written in it (docs/formats/repository.md)
* `catalog`: which savepoints there are; `marks`, `holds`: which of them are expired, and which are in use
* `coverage`: what a replica holds; `trash`: objects that are pending delete
* `objects`: the content of files, by its digest

Everywhere here, and in whatever works on repositories: a `store` is a repository's root, a `job` beside a
savepoint is `job` or `job/query`, a `savepoint` is an id, and `objects` by digest have their sizes in bytes.
"""
