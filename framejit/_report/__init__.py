"""What `explain` reports, and how it is shown. parts.py: kernels and guards as objects. summary.py: the lines that print gives.
terminal.py: the same in colour. sources.py: the user's files and the chains of calls. page.py: the HTML page."""
