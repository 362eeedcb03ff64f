"""The hook: where a job's declaration, repository and control records are."""
