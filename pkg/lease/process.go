package lease

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is what a Lease knows of the process that it is in.
type process struct {
	identity string               // no other living process has it
	letGo    func()               // of the identity
	now      func() time.Duration // a clock that cannot be set
}

// identify names this process. The restarted container of a pod has the same
// host name, directory and network, and proves that its predecessor is gone by
// listening where that did: the kernel lets one process at a time. Without
// that proof it gets a name that no process has had.
func identify(c Config) (process, error) {
	host, err := os.Hostname()
	if err != nil {
		return process{}, fmt.Errorf("the host has no name: %w", err)
	}
	p := process{identity: host + "-" + rand.Text(), letGo: func() {}, now: clock()}
	if c.Dir == "" {
		return p, nil
	}
	dir, err := os.Stat(c.Dir)
	if err != nil {
		return process{}, err
	}
	boot, bootErr := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, networkErr := os.Readlink("/proc/self/ns/net")
	stat, ok := dir.Sys().(*syscall.Stat_t)
	if errors.Join(bootErr, networkErr) != nil || !ok {
		return p, nil //nolint:nilerr // without that proof
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %d %q %q", host, boot, network, stat.Dev, stat.Ino, c.Namespace, c.Owner))
	if held, err := net.Listen("unix", "@contract-cosi-driver/"+hex.EncodeToString(sum[:])); err == nil { //nolint:noctx // it takes no time
		p.identity, p.letGo = host+"-"+hex.EncodeToString(sum[:5]), func() { _ = held.Close() }
	}
	return p, nil
}

// clock goes on while the machine is suspended. Where there is no such clock,
// one that stops then has to do.
func clock() func() time.Duration {
	const bootTime = 7 // CLOCK_BOOTTIME, see clock_gettime(2)
	start := time.Now()
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(bootTime, &ts); err != nil {
			return time.Since(start)
		}
		return time.Duration(ts.Nano())
	}
}
