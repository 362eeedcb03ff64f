"""What a streaming job promises: what is measured of it, what is judged, foretold and told.

`point` and `metrics` say what a measurement is, `history` reads them from a job's progress records,
`recoveries` from its other records, and `unmanaged` from a checkpoint alone (docs/reference/sla.md).
"""
