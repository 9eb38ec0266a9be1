#!/usr/bin/env bash
# Builds a Kubernetes node and its images, and runs the scenarios on it, or those
# that RUN names. The node is in namespaces of its own, all but that of users: when
# they end, so does all that it has started. What is left then are empty cgroups
# and one directory, which are removed here.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
bin=$root/bin/node
namespaces=(unshare --net --mount --pid --uts --ipc --fork --kill-child=KILL --mount-proc --propagation private)
packages=(containerd runc containernetworking-plugins iptables conntrack dnsmasq-base buildah busybox-static rclone iproute2 git ca-certificates)

fail() {
	echo "make node: $*" >&2
	exit 1
}
[ "$(uname -s)" = Linux ] || fail "a node needs Linux"
[ "$(id -u)" = 0 ] || fail "a node needs namespaces, mounts and cgroups: run it as root"
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
	command -v apt-get >/dev/null || fail "install ${packages[*]}"
	echo "Installing ${packages[*]} ..."
	apt-get -qq update
	# No service starts: only the programs are wanted.
	mkdir -p "$bin"
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install --yes --no-install-recommends "${packages[@]}" >"$bin/apt.log" 2>&1 ||
		fail "$(tail -20 "$bin/apt.log")"
fi

# What a node needs of the kernel, before anything is built. Not every container may
# do all of it, root or not. With IF_POSSIBLE=1 such a machine runs no node, and says so;
# everything else that goes wrong is a failure there too.
mkdir -p "$bin/path"
rm -f "$bin/not-run"
if ! refused=$("${namespaces[@]}" bash check.sh 2>&1); then
	verdict="not run: this machine refuses what a kubelet needs: $refused"
	[ -n "${IF_POSSIBLE:-}" ] || fail "$verdict"
	printf '\n== make node: %s\n\n' "$verdict" | tee "$bin/not-run"
	exit 0
fi

echo "Building the node ..."
kube=$(bash ../e2e/kube/build.sh kubelet kube-controller-manager kube-scheduler kube-proxy)
echo "Building helm (up to two minutes the first time) ..."
export CGO_ENABLED=0
go build -trimpath -ldflags "-s -w" -o "$bin/path/helm" helm.sh/helm/v3/cmd/helm
go build -trimpath -o "$bin/app" ./app
go build -trimpath -o "$bin/scenarios" .
(cd ../e2e && go build -trimpath -o "$bin/cosi" ./cosi)
(cd "$root/cmd/contractd" && go build -trimpath -o "$bin/contractd" .)
[ -f "$bin/service.crt" ] || "$bin/scenarios" -certificate "$bin"
[ -n "${KEEP_IMAGES:-}" ] || bash images.sh "$bin"

cosi=$(cd ../e2e && go list -m -f '{{.Dir}}' sigs.k8s.io/container-object-storage-interface)
client=$(cd ../e2e && go list -m -f '{{.Dir}}' sigs.k8s.io/container-object-storage-interface/client)
dir=$(mktemp -d /tmp/node.XXXXXX)
group=contract-cosi-${dir##*.}
# The Lease's holder is told by its host's name, and so are pods by the node's.
node=
clean() {
	trap '' INT TERM
	if [ -n "$node" ]; then
		kill -KILL "$node" 2>/dev/null || true # unshare takes no other signal, and its child ends with it
		wait "$node" 2>/dev/null || true
	fi
	# Mounts went with the namespace, so that nothing else can be meant here.
	rm -rf --one-file-system "$dir"
	find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null || true
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# The shell is process 1 there, and takes up the processes that lose their parent.
# shellcheck disable=SC2016
"${namespaces[@]}" \
	bash -c '"$@" & wait $!' node \
	"$bin/scenarios" -dir "$dir" -group "$group" -kube "$kube" -bin "$bin" -root "$root" -cosi "$cosi" -cosi-client "$client" -run "${RUN:-.}" "$@" &
node=$!
code=0
wait "$node" || code=$?
node=
exit "$code"
