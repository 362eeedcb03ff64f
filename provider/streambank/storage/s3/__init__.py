"""The store of S3 and of whatever speaks its protocol."""
