"""An upgrade's time without processing beside Flink's stop with a savepoint and restore."""
