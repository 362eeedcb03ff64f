"""What the command line shows: lines, tables, JSON documents, plots and pages."""
