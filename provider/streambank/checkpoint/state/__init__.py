"""State stores: which files make a version, of HDFS-backed stores and of RocksDB."""
