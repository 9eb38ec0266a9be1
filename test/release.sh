#!/usr/bin/env bash
# Makes a release with a throw-away key, and proves that a user can verify it: the
# programs come out the same elsewhere, and what was changed is noticed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
release=$work/release version=0.0.1-test
fail() {
	echo "release: $*" >&2
	exit 1
}
minisign() { go -C test/release tool minisign "$@"; }

minisign -G -W -p "$work/key.pub" -s "$work/key" >/dev/null
DIST=$release VERSION=$version KEY=$work/key bash deploy/release.sh

echo "Building again, in another directory and with an empty cache ..."
mkdir "$work/copy"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -c --ignore-failed-read | tar -x -C "$work/copy"
DIST=$work/again VERSION=$version ARCHS=amd64 GOCACHE=$work/cache bash "$work/copy/deploy/release.sh" programs
for program in "$work"/again/*; do
	cmp "$program" "$release/${program##*/}" || fail "two builds of ${program##*/} differ"
done

driver=contract-cosi-driver_${version}_linux_$(go env GOARCH)
[ "$("$release/$driver" version | cut -d' ' -f1)" = "$version" ] || fail "$driver says version $("$release/$driver" version)"
[ "$(stat -c %s "$release/$driver")" -le $((32 << 20)) ] || fail "$driver has more than 32 MiB"
for program in contract-cosi-driver contractd; do
	for arch in amd64 arm64; do
		file=${program}_${version}_linux_$arch
		grep -q "$(go version "$release/$file" | grep -o 'go1[0-9.]*')" "$release/$file.cdx.json" || fail "$file.cdx.json does not name its Go"
		go version -m "$release/$file" | awk '$1 == "dep" {print $2 "@" $3}' | while read -r module; do
			grep -q "pkg:golang/$module" "$release/$file.cdx.json" || fail "$file.cdx.json lacks $module"
		done
		grep -q "$(sed -nE 's/^ARG BASE_IMAGE=.*@//p' Dockerfile)" "$release/image_$file.cdx.json" || fail "image_$file.cdx.json lacks the base image"
	done
done
tar -xzOf "$release/contract-cosi-driver-$version.tgz" contract-cosi-driver/Chart.yaml | grep -q "^appVersion: $version" || fail "the chart has another version"

verify() { minisign -V -Q -p "$work/key.pub" -m "$release/SHA256SUMS" && (cd "$release" && sha256sum --quiet -c SHA256SUMS); }
verify || fail "the signature or a checksum is wrong"
cp "$release/SHA256SUMS" "$work/sums"
sed -i 's/^./x/' "$release/SHA256SUMS"
if verify >/dev/null 2>&1; then fail "changed checksums pass"; fi
cp "$work/sums" "$release/SHA256SUMS"
echo >>"$release/$driver"
if verify >/dev/null 2>&1; then fail "a changed program passes"; fi
echo "the release is reproducible, complete and signed"
