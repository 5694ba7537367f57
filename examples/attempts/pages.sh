#!/usr/bin/env bash
# Reads five pages that cost money, asks a person, and reports. Killed at any moment it goes on where it was.
# What it says about itself it says with `fencepost attempt`, which is on the PATH of every attempt.
set -eu

pages=5
: > pages.txt
# What an earlier attempt has checkpointed; where there is none, nothing is written.
fencepost attempt resume --optional --to pages.txt

for ((page = $(wc -l < pages.txt) + 1; page <= pages; page++)); do
    fencepost attempt heartbeat --quiet --note "page $page of $pages"
    sleep 0.2
    echo "text of page $page" >> pages.txt
    # A receipt is booked once, however often it is said: after a kill nobody knows whether it was said already. A real
    # one is the provider's id of the payment; this one holds its order, so that another run pays for itself.
    for _ in 1 2; do
        fencepost attempt charge --quiet --receipt "$FENCEPOST_WORK_ORDER-page-$page" --provider pages --calls 1 --money USD:0.001
    done
    # Refused, unless this attempt goes on from the last checkpoint of its order.
    fencepost attempt checkpoint pages.txt --builds-on $((page - 1))
done
fencepost attempt artifact pages.txt

if ! answer=$(fencepost attempt answer publish --value 2> /dev/null); then
    # Waiting holds nothing: this attempt ends here, and the next one starts when the answer is there.
    fencepost attempt yield --question publish --prompt "Publish the $pages pages?"
    exit 0
fi
echo "$pages pages, publish: $answer" > report.txt
