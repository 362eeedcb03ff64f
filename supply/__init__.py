"""What the project is made of: a list of it, what is known of its weaknesses, and images by digest."""
