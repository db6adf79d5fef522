"""``python -m tests.transcript [NAME ...]``: record transcripts anew, all or those named."""

import sys

from tests.transcript.recording import record, transcripts

if __name__ == "__main__":
    for name, path in transcripts().items():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            path.write_text(record(path.read_text()))
