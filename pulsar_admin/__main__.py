"""``python -m pulsar_admin``."""

from pulsar_admin.cli import main

if __name__ == "__main__":
    main()
