"""Jobs for tests: declared, simulated, or run by real drivers."""
