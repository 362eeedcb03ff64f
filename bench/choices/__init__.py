"""What a choice of encoding, access, checkpoint or operator costs: figures beside those of a first choice."""
