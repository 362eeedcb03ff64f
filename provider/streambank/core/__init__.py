"""What every room stands on: errors with codes and hints, findings, units, the environment."""
