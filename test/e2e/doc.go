// Package e2e proves the driver in a cluster: a real API server, the released
// COSI controller and sidecar, the driver under its own ServiceAccount, and
// contractd behind it. There is no kubelet and no other controller. Run it with
// make e2e.
package e2e
