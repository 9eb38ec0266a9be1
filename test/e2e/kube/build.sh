#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kubectl and the parts of Kubernetes that it is given,
# once for each version, and prints the directory that holds them: a cache outside
# the tree, which every clone shares.
set -euo pipefail
cd "$(dirname "$0")"

# version prints the version that a module's go.mod requires.
version() { (cd "$1" && go list -m -f '{{.Version}}' "$2"); }

etcd=$(version etcd go.etcd.io/etcd/server/v3)
kube=$(version kubernetes k8s.io/kubernetes)
bin=${XDG_CACHE_HOME:-$HOME/.cache}/contract-cosi-driver/kube-$kube-etcd-$etcd-$(go env GOOS)-$(go env GOARCH)
mkdir -p "$bin"

# build compiles a package to $bin/<name>, unless it is there. What is there is
# whole: it was moved into place.
build() { # name module package ldflags
	if [ -x "$bin/$1" ]; then
		return
	fi
	local start=$SECONDS
	(cd "$2" && CGO_ENABLED=0 go build -v -trimpath -ldflags "-s -w $4" -o "$bin/$1.$$" "$3" 2>&1) |
		awk '/[: ]/ {print; next} ++n % 100 == 0 {print "  " n " packages compiled"; fflush()}' >&2
	mv "$bin/$1.$$" "$bin/$1"
	echo "  $1 took $((SECONDS - start)) s" >&2
}

for part in etcd kube-apiserver kubectl "$@"; do
	[ -x "$bin/$part" ] || missing+=" $part"
done
if [ -n "${missing:-}" ]; then
	echo "Building$missing of Kubernetes $kube and etcd $etcd, this once, into $bin" >&2
	echo "(up to eight minutes on two cores where Go has compiled nothing of them yet) ..." >&2
fi
trap 'rm -f "$bin"/*.$$' EXIT

# Without a version in them the API server claims to be v0.0.0, and kubectl
# refuses to print its own.
rest=${kube#v*.}
stamp="-X k8s.io/component-base/version.gitVersion=$kube -X k8s.io/component-base/version.gitMajor=${kube:1:1} -X k8s.io/component-base/version.gitMinor=${rest%%.*}"
build etcd etcd go.etcd.io/etcd/server/v3 ""
build kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver "$stamp"
build kubectl kubernetes k8s.io/kubernetes/cmd/kubectl "$stamp -X k8s.io/client-go/pkg/version.gitVersion=$kube"
for part in "$@"; do
	build "$part" kubernetes "k8s.io/kubernetes/cmd/$part" "$stamp"
done
echo "$bin"
