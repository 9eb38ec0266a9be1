#!/usr/bin/env bash
# Generates everything again in a copy of the tree and compares; then formats,
# vets and checks that every go.mod is tidy.
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
for module in . cmd/contractd test/deploy test/e2e test/tools test/versitygw; do
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
go vet ./...
(cd cmd/contractd && go vet ./...)
(cd test/deploy && go vet ./...)
(cd test/e2e && go vet ./...)
(cd test/versitygw && go vet ./...)
[ "$stale" = 0 ] && echo "nothing is stale"
exit "$stale"
