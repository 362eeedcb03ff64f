"""Programs for spark-submit: each one plan or one request, and a report."""
