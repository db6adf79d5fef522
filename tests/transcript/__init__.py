"""What the command line says, recorded: a line of each command on golden data, screens, and errors, with stdout, stderr and exit codes.

A characterisation test, no oracle. It shows that a change which was to keep behaviour kept it, and lets a reader of a diff
see what an operator will see; whether an answer is *right*, the other tests say. What is known to be wrong is not recorded.

Few lines say it: one of a kind of error, a short answer of each command, one of each format in a group. What only makes a state for
the lines behind it ends in ``> /dev/null``, and what it prints is not recorded. Answers are tested elsewhere, help by its pages.

``python -m tests.transcript [NAME ...]`` records anew. One may, in a commit that says so, when the words or the shape of
output were to change, and after reading every line of the diff; never to make a move of code pass.

A transcript is a ``.txt`` file and its own script: the lines with ``$`` are run in order, in a new directory and in this
process; what follows each is what was recorded.

    $ pulsar-admin topics list public/no-such-namespace
    ! error: …          a line of stderr
    ? 5                 the exit code, where it is not 0

``NAME=VALUE`` may stand before the command; ``< FILE``, ``<<< TEXT``, ``> FILE`` and ``> /dev/tty`` (a terminal of 80 columns) after it;
``$ # …`` is a comment. ``recording.STEPS`` has the few other commands.

Outputs depend on nothing but the code: the directory's name always has the same length and is shown as ``DIRECTORY``, now is
``NOW``, whatever is measured takes one second, the terminal has 80 columns. ``recording.MASKS`` is what could not be fixed.
"""
