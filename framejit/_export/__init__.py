"""Programs: graphs for a declared range of sizes, which are called and saved as one object. Start at program.py."""
