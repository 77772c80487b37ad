"""What a report shows, how it is stored, and how it looks."""
