"""The Spark face: what runs inside a Spark driver or on executors."""
