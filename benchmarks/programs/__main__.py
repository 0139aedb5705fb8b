"""`python benchmarks/programs` is `python benchmarks/programs/run.py`."""
import run

if __name__ == "__main__":
    run.main()
