"""What `python -m framejit` does: one module for each command. Nothing here is imported with framejit."""
