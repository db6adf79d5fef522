#!/usr/bin/env bash
# The main jobs on small real data, step by step. Run by `make demo` and, with the word spark, by `make demo-spark`; everything lies in .demo/.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .demo
mkdir .demo
echo "Unpacking what a real Pulsar 4.0.8 wrote: a standalone, and a cluster of ZooKeeper and three bookies ..."
tar -xJf tests/golden/pulsar-4.0.8-small.tar.xz -C .demo --strip-components 1 pulsar-4.0.8-small/clean
mv .demo/clean .demo/standalone
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

if test "${1-}" = spark; then
    step "The time index again from the entry logs, scanned on Spark" \
        pulsar-admin store index --rebuild --spark
    step "Whose clock is wrong? A scan on Spark ..." \
        pulsar-admin topics skew --all-topics --spark -o csv
    step "... and the same without" \
        pulsar-admin topics skew --all-topics -o csv
    pulsar-admin -q topics skew --all-topics --spark -o csv >on-spark.csv
    pulsar-admin -q topics skew --all-topics -o csv >local.csv
    step "The same bytes" \
        cmp on-spark.csv local.csv
    printf '\nDone: docs/howto/spark.md goes on from here.\n'
    exit
fi

step "What is here, what is wrong, what to ask next" \
    pulsar-admin overview
step "Why does this subscription not move?" \
    pulsar-admin topics why public/default/plain -s holes
step "What would a reset replay?" \
    pulsar-admin topics reset-cursor public/default/plain -s half -m 29:20 --dry-run
step "Do it" \
    pulsar-admin topics reset-cursor public/default/plain -s half -m 29:20
step "Take it back" \
    pulsar-admin store undo 1
step "Who did what: the audit log" \
    pulsar-admin store log
step "Write the changes back: a directory that a real broker starts on" \
    pulsar-admin store export standalone exported

tar -xJf ../tests/golden/pulsar-4.0.8-cluster.tar.xz --strip-components 1 pulsar-4.0.8-cluster/mutated
mv mutated cluster
export PULSAR_ADMIN_STORE=cluster-store
step "A cluster: copies of ZooKeeper's directory and of the disks of three bookies" \
    pulsar-admin store import cluster --zookeeper cluster/zookeeper \
    --bookie cluster/bookkeeper0 --bookie cluster/bookkeeper1 --bookie cluster/bookkeeper2
step "What was deleted here, when, and how much of it the bookies still have" \
    pulsar-admin topics undelete
step "Give a deleted topic back" \
    pulsar-admin topics undelete public/default/doomed --in-place
step "Its messages" \
    pulsar-admin topics read public/default/doomed -n 3
step "All findings in one file, to send to somebody: exit code 1 says that there are some" \
    pulsar-admin doctor --html doctor.html --fail-on critical
printf '\nDone. Open .demo/doctor.html; or try: cd .demo && ../.venv/bin/pulsar-admin --help\n'
