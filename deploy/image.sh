#!/usr/bin/env bash
# Builds the images of both programs with whichever builder works here, or with
# BUILDER. TAG, BUILD_IMAGE and BASE_IMAGE may be given in the environment too.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${TAG:-$(sed -nE 's/^appVersion: *//p' deploy/chart/Chart.yaml)}

if [ -n "${BUILDER:-}" ]; then
	build=("$BUILDER" build)
elif docker info >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1; then
	build=(docker buildx build --load)
elif command -v podman >/dev/null; then
	build=(podman build)
elif command -v buildah >/dev/null; then
	build=(buildah build)
else
	echo "make image: no builder works here. Install docker with buildx (and start it), podman or buildah; make build needs none." >&2
	exit 1
fi
arguments=(--build-arg "VERSION=$tag")
for name in BUILD_IMAGE BASE_IMAGE; do
	if [ -n "${!name:-}" ]; then
		arguments+=(--build-arg "$name=${!name}")
	fi
done
for image in contract-cosi-driver:driver contractd:contractd; do
	echo "Building ${image%:*}:$tag with ${build[0]} ..."
	"${build[@]}" "${arguments[@]}" --target "${image#*:}" --tag "${image%:*}:$tag" .
done
