"""`python -m raftctl` is `raftctl`."""

from raftctl.cli.main import main

if __name__ == "__main__":
    main()
