"""What a restored query would read next: whether its sources still have it."""
