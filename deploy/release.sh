#!/usr/bin/env bash
# Builds into DIST what a release holds: the programs for linux on amd64 and arm64,
# a software bill of materials (CycloneDX) of each program and each image, the
# chart, checksums, and a minisign signature of the checksums by the key in the
# file KEY. "release.sh programs" and "release.sh sbom" end after that part.
#
# The same commit, VERSION and Go make the same programs and bills, byte by byte.
set -euo pipefail
part=${1:-all}
key=
if [ "$part" = all ]; then
	if [ ! -r "${KEY:-}" ]; then
		echo "make release: KEY names no file that can be read: give the secret key that minisign -G made, as in make release KEY=minisign.key" >&2
		exit 1
	fi
	key=$(realpath "$KEY")
fi
cd "$(dirname "$0")/.."
version=${VERSION:-$(sed -nE 's/^appVersion: *//p' deploy/chart/Chart.yaml)}
base=${BASE_IMAGE:-$(sed -nE 's/^ARG BASE_IMAGE=//p' Dockerfile)}
mkdir -p "${DIST:=bin/release}"
dist=$(cd "$DIST" && pwd)
rm -rf "${dist:?}"/*
log=$(mktemp)
trap 'rm -f "$log"' EXIT

build() { # MODULE PACKAGE NAME
	echo "Building $3 for $GOARCH ..."
	GOOS=linux CGO_ENABLED=0 go -C "$1" build -tags grpcnotrace -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.release=$version" -o "$dist/$3_${version}_linux_$GOARCH" "$2"
}
for GOARCH in ${ARCHS:-amd64 arm64}; do
	export GOARCH
	build . ./cmd/contract-cosi-driver contract-cosi-driver
	build cmd/contractd . contractd
done
unset GOARCH
[ "$part" != programs ] || exit 0

echo "Writing the bills of materials ..."
for program in "$dist"/*_linux_*; do
	file=${program##*/}
	go tool -modfile=test/release/go.mod cyclonedx-gomod bin -json -std -noserial -notimestamp -licenses \
		-version "$version" -output "$program.cdx.json" "$program" 2>"$log" || { cat "$log" >&2; exit 1; }
	go -C test/release run ./imagebom -image "${file%%_*}:$version" -base "$base" \
		<"$program.cdx.json" >"$dist/image_$file.cdx.json"
done
[ "$part" != sbom ] || exit 0

echo "Packing the chart ..."
go -C test/deploy run ./packchart "$PWD/deploy/chart" "$version" "$dist"

echo "Signing ..."
(cd "$dist" && sha256sum -- * >"$log" && cp "$log" SHA256SUMS)
go -C test/release tool minisign -S -s "$key" -t "contract-cosi-driver $version" -m "$dist/SHA256SUMS"
(cd "$dist" && ls -l | awk 'NR > 1 {printf "%11d %s\n", $5, $9}')
