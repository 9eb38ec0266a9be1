#!/usr/bin/env bash
# Tries, in namespaces that end with it, what a node needs, and ends with the first
# thing that is refused.
set -euo pipefail

needs() { # what command...
	local what=$1 said
	shift
	said=$("$@" 2>&1) || {
		echo "$what ($*: ${said##*$'\n'})"
		exit 1
	}
}
over() { cat "$1" >/run/over && mount --bind /run/over "$1"; }
write() { echo "$1" >"$2"; }
group() { mkdir "$1/contract-cosi-check" && rmdir "$1/contract-cosi-check"; }

needs "mounts" mount -t tmpfs none /run
needs "mounts over /proc/sys" over /proc/sys/kernel/panic
needs "a host name" write node /proc/sys/kernel/hostname
needs "a bridge" ip link add check0 type bridge
needs "pairs of network interfaces" ip link add check1 type veth peer name check2
needs "forwarding" write 1 /proc/sys/net/ipv4/ip_forward
needs "address translation" iptables -w -t nat -A POSTROUTING -m comment --comment check -j MASQUERADE
needs "rules by chance, as kube-proxy has them" iptables -w -t nat -A POSTROUTING -m statistic --mode random --probability 0.5 -j ACCEPT
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then # version 2
	for name in cpu cpuset memory pids; do
		needs "the cgroup controller $name" grep -w "$name" /sys/fs/cgroup/cgroup.controllers
		needs "the cgroup controller $name" write "+$name" /sys/fs/cgroup/cgroup.subtree_control
	done
	needs "cgroups" group /sys/fs/cgroup
else
	for name in cpu cpuacct cpuset memory pids; do
		needs "the cgroup hierarchy $name" group "/sys/fs/cgroup/$name"
	done
fi
