"""The file sink: its log, what a savepoint keeps of it, where it stands, and how it is rolled back."""
