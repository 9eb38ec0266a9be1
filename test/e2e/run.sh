#!/usr/bin/env bash
# Runs all scenarios, or those that its flags choose: builds what it needs
# beside the driver and contractd, and sees to the other S3 clients.
set -euo pipefail
cd "$(dirname "$0")"
bin=$(cd ../.. && pwd)/bin

if ! command -v s3cmd >/dev/null || ! command -v rclone >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "e2e: s3cmd or rclone is missing, S3 clients beside the Go SDK: install the packages s3cmd and rclone" >&2
		exit 1
	fi
	echo "Installing s3cmd and rclone ..." >&2
	apt-get -qq update >&2
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends s3cmd rclone >&2
fi
kube=$(bash kube/build.sh)
echo "Building COSI's controller and sidecar (about a minute the first time) ..."
CGO_ENABLED=0 go build -trimpath -o "$bin/cosi" ./cosi
# One whose keys may live for seconds.
CGO_ENABLED=0 go -C ../.. build -tags grpcnotrace,e2e -trimpath -o "$bin/e2e-driver" ./cmd/contract-cosi-driver
go test -c -o "$bin/e2e.test" .
# Not by go test, which would not pass on a request to end.
exec "$bin/e2e.test" -test.timeout 0 "$@" -kube "$kube" -bin "$bin"
