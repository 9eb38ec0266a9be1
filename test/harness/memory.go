package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is a field of what the kernel says of a process (VmRSS, VmHWM), in MiB.
func Memory(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == field+":" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("the kernel says no %s of process %d", field, pid)
}

// Adds returns how many MiB a process's memory rises above what it has, while
// something is done. The high-water mark is reset first (proc_pid_clear_refs(5)).
func Adds(pid int, do func() error) (float64, error) {
	before, err := Memory(pid, "VmRSS")
	if err == nil {
		err = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		return 0, err
	}
	peak, err := Memory(pid, "VmHWM")
	return peak - before, err
}
