#!/usr/bin/env bash
# Measures the driver beside that of the commit before, or of the last commit where
# something is changed since. Where there is none, as in a shallow clone, the driver's
# ratios to its own calls are held to those that were recorded.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o bin/bench ./test/bench
short=(-backend contractapi,versitygw -rounds 24 -serial 10 -parallel 48 -live 32 -within 110s)

rev=HEAD^
git diff --quiet HEAD -- cmd pkg go.mod 2>/dev/null || rev=HEAD
if commit=$(git rev-parse --quiet --verify "$rev^{commit}" 2>/dev/null); then
	echo "Building the driver of $(git log -1 --format='%h (%s)' "$commit") ..."
	mkdir "$dir/before"
	git archive "$commit" | tar -x -C "$dir/before"
	(cd "$dir/before" && CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -o "$dir/driver" ./cmd/contract-cosi-driver)
	bin/bench "${short[@]}" -check "$dir/driver"
else
	echo "There is no commit before this one here, as in a shallow clone: comparing with the ratios of test/bench/results.json"
	bin/bench "${short[@]}" -check-recorded test/bench/results.json
fi
