"""Work sent to a Spark cluster: plans, bundles of our own code, and sessions."""
