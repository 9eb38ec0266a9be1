#!/usr/bin/env bash
# Builds the images that the node runs, without a registry, into $1/images: the
# repository's own with `make image`, and those of others from what Go and Debian
# have. The bases, which a registry has otherwise, are made here too: Go is that of
# this machine, with its caches.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export BUILDAH_ISOLATION=chroot CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf
# buildah unmounts what it has mounted; what it leaves when it is killed goes with the directory.
trap 'rm -rf --one-file-system "$work"' EXIT
driver=overlay
mkdir "$work"/{lower,upper,scratch,merged}
mount -t overlay -o "lowerdir=$work/lower,upperdir=$work/upper,workdir=$work/scratch" none "$work/merged" 2>/dev/null && umount "$work/merged" || driver=vfs
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "$driver"
graphroot = "$work/graph"
runroot = "$work/run"
END
cat >"$CONTAINERS_CONF" <<END
[containers]
volumes = ["$(go env GOROOT):/usr/local/go:ro", "$(go env GOMODCACHE):/go/pkg/mod", "$(go env GOCACHE):/go/cache"]
END

# image commits a directory under a name; further arguments are buildah config's.
image() { # name directory arguments...
	local name=$1 dir=$2 c
	shift 2
	c=$(buildah from scratch)
	buildah copy -q "$c" "$dir" / >/dev/null
	buildah config "$@" "$c"
	buildah commit -q "$c" "$name" >/dev/null
	buildah rm "$c" >/dev/null
}

# save writes an image as the file that containerd reads.
save() { # name full-name
	local file=$bin/images/${1%%:*}.tar
	rm -f "$file"
	buildah push -q "$1" "docker-archive:$file:$2"
}

base=$work/base
mkdir -p "$base"/{tmp,etc/ssl/certs}
chmod 1777 "$base/tmp"
cat /etc/ssl/certs/ca-certificates.crt "$bin/service.crt" >"$base/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0::/:\nnonroot:x:65532:65532::/:\n' >"$base/etc/passwd"
cp -r "$base" "$work/shell"
mkdir "$work/shell/bin"
for name in busybox sh cat cmp cp date ln sed sleep; do
	ln /bin/busybox "$work/shell/bin/$name" 2>/dev/null || cp /bin/busybox "$work/shell/bin/$name"
done
mkdir -p "$bin/images"
image build "$work/shell" --env PATH=/usr/local/go/bin:/bin --env GOMODCACHE=/go/pkg/mod --env GOCACHE=/go/cache \
	--env GOPROXY="$(go env GOPROXY)" --env GOSUMDB="$(go env GOSUMDB)" --env GOTOOLCHAIN=local
image base "$base" --user 65532

BUILDER=buildah BUILD_IMAGE=localhost/build BASE_IMAGE=localhost/base make -C "$here/../.." image >"$bin/images.log" 2>&1 || {
	tail -20 "$bin/images.log" >&2
	exit 1
}
tag=$(sed -nE 's/^appVersion: *//p' "$here/../../deploy/chart/Chart.yaml")
save "contract-cosi-driver:$tag" "docker.io/library/contract-cosi-driver:$tag"
save "contractd:$tag" "docker.io/library/contractd:$tag"

image pause "$work/shell" --entrypoint '["/bin/sleep", "infinity"]'
save pause localhost/pause:1
image busybox "$work/shell" --env PATH=/bin --cmd sh
save busybox docker.io/library/busybox:1.37
cp "$bin/app" "$work/shell/bin/app"
cp "$bin/app" "$work/shell/bin/aws"
image aws "$work/shell" --env PATH=/bin --entrypoint '["/bin/aws"]'
save aws docker.io/amazon/aws-cli:2.31.0
cp -r "$work/shell" "$work/rclone"
program=$(command -v rclone)
ldd "$program" | grep -o '/[^ ]*' | xargs -I{} cp -L --parents {} "$work/rclone"
cp "$program" "$work/rclone/bin/rclone"
image rclone "$work/rclone" --env PATH=/bin --entrypoint '["/bin/rclone"]'
save rclone docker.io/rclone/rclone:1.71
cp "$bin/cosi" "$base/cosi"
image sidecar "$base" --user 65532 --entrypoint '["/cosi", "sidecar", "--leader-elect"]'
save sidecar registry.k8s.io/sig-storage/objectstorage-sidecar:v0.2.2
image controller "$base" --user 65532 --entrypoint '["/cosi", "controller"]'
save controller "$(sed -nE 's/^ *image: *//p' "$(cd "$here/../e2e" && go list -m -f '{{.Dir}}' sigs.k8s.io/container-object-storage-interface)/controller/resources/deployment.yaml")"
