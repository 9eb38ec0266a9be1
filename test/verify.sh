#!/usr/bin/env bash
# Generates everything again in a copy of the tree and compares; then checks that
# every go.mod is tidy and lints.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
	if [ -e "$f" ]; then
		mkdir -p "$copy/$(dirname "$f")"
		cp "$f" "$copy/$f"
	fi
done
make -s -C "$copy" generate
for module in . cmd/contractd cmd/cosi-sanity test/alerts test/controller-gen test/deploy test/e2e test/lint test/node test/release test/tools test/versitygw; do
	(cd "$copy/$module" && go mod tidy)
done
stale=0
while IFS= read -r -d '' f; do
	if [ -e "$f" ] && ! cmp -s "$f" "$copy/$f"; then
		echo "stale: $f (run make generate, or go mod tidy in its module)"
		stale=1
	fi
done < <(git ls-files -z)
unformatted=$(gofmt -l cmd pkg test)
if [ -n "$unformatted" ]; then
	echo "not formatted: $unformatted"
	stale=1
fi
echo "Linting (a few minutes the first time) ..."
root=$PWD
for module in . cmd/contractd cmd/cosi-sanity test/alerts test/deploy test/e2e test/node test/release test/versitygw; do
	(cd "$module" && go tool -modfile="$root/test/lint/go.mod" golangci-lint run) || stale=1
done
[ "$stale" = 0 ] && echo "nothing is stale"
exit "$stale"
