"""The checks of the doctor, one module for each family of findings."""
