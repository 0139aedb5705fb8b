"""What the C++ side calls."""
