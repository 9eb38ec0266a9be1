#!/usr/bin/env bash
# Runs all scenarios, or those that its flags choose: builds what it needs
# beside the driver and contractd, and sees to the second S3 client.
set -euo pipefail
cd "$(dirname "$0")"
bin=$(cd ../.. && pwd)/bin

if ! command -v s3cmd >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "e2e: s3cmd is missing, the S3 client that shares no code with the Go SDK: install the package s3cmd" >&2
		exit 1
	fi
	echo "Installing s3cmd ..." >&2
	apt-get -qq update >&2
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends s3cmd >&2
fi
kube=$(bash kube/build.sh)
echo "Building COSI's controller and sidecar (about a minute the first time) ..."
CGO_ENABLED=0 go build -trimpath -o "$bin/cosi" ./cosi
# One whose keys may live for seconds.
CGO_ENABLED=0 go -C ../.. build -tags grpcnotrace,e2e -trimpath -o "$bin/e2e-driver" ./cmd/contract-cosi-driver
go test -c -o "$bin/e2e.test" .
# Not by go test, which would not pass on a request to end.
exec "$bin/e2e.test" -test.timeout 0 "$@" -kube "$kube" -bin "$bin"
