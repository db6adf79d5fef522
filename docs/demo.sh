#!/usr/bin/env bash
# The main job on a small real data set, step by step. Run by `make demo`; everything it makes lies in .demo/.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .demo
mkdir .demo
echo "Unpacking a data directory that a real Pulsar 4.0.8 wrote ..."
tar -xJf tests/golden/pulsar-4.0.8-small.tar.xz -C .demo
mv .demo/pulsar-4.0.8-small/clean .demo/standalone
rm -rf .demo/pulsar-4.0.8-small
cd .demo
unset PULSAR_ADMIN_STORE

step() {
    printf '\n\033[1m# %s\033[0m\n' "$1"
    shift
    printf '$ %s\n' "$*"
    "$@"
}

step "Import: the source is only read" \
    pulsar-admin store import standalone standalone
step "What is in it" \
    pulsar-admin topics list acme/iot
step "Where in this topic is 11:29:29? Its producers' clocks disagree, so the broker's answer is shown beside ours" \
    pulsar-admin topics find-by-time acme/iot/skewed --time 2026-11-21T11:29:29Z --clock publish --explain
step "The messages there" \
    pulsar-admin topics read public/default/plain --from 29:20 -n 3
step "What would a reset replay?" \
    pulsar-admin topics reset-cursor public/default/plain -s half -m 29:20 --dry-run
step "Do it" \
    pulsar-admin topics reset-cursor public/default/plain -s half -m 29:20
step "The audit log" \
    pulsar-admin store log
step "Take it back" \
    pulsar-admin store undo 1
step "What would nacking the holes of a subscription cost, at every precision?" \
    pulsar-admin nacks plan --topic public/default/plain -s holes --delay 10m --precision 1s -o table
step "Keep them for a script: due in an hour" \
    pulsar-admin nacks add public/default/plain -s holes --delay 1h --holes
step "Two entries sooner" \
    pulsar-admin nacks add public/default/plain -s half --delay 10m 29:20 29:21
step "Take out what is due by then; store log keeps it" \
    pulsar-admin nacks due --now +20m --pop
step "Which delayed messages fall due when?" \
    pulsar-admin delayed histogram acme/delayed/reminders -s workers --now 2026-11-21T09:30:00Z
step "What would be dispatched by noon" \
    pulsar-admin delayed due acme/delayed/reminders -s workers --end-time 2026-11-21T12:00:00Z
step "The last message of a compacted topic, from metadata alone" \
    pulsar-admin compaction last-id acme/orders/compacted
step "Once more, and out again: a directory a real broker starts on" \
    pulsar-admin topics reset-cursor public/default/plain -s half -t 2026-11-21T09:23:13Z
step "Export" \
    pulsar-admin store export standalone exported
if command -v java >/dev/null && ../.venv/bin/python -c 'import pyspark, pandas' 2>/dev/null; then
    step "The index again from the files, scanned on Spark" \
        pulsar-admin store index --rebuild --spark
    step "Whose clock is wrong? A scan on Spark" \
        pulsar-admin topics skew acme/iot/skewed --spark -o table
fi
printf '\nDone. The store is .demo/pulsar-store; try: cd .demo && ../.venv/bin/pulsar-admin --help\n'
