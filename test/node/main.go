// Command scenarios starts a Kubernetes node in the namespaces that it runs in, and
// goes through what happens to an installation, as a person would do and see it.
// run.sh makes the namespaces, and ends them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// limit is for the node and all scenarios together.
const limit = 25 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	err := run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nmake node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	n := &node{parts: map[string]*part{}}
	flag.StringVar(&n.dir, "dir", "", "`directory` for all that the node writes")
	flag.StringVar(&n.group, "group", "", "`name` of the node's cgroup")
	flag.StringVar(&n.kube, "kube", "", "`directory` with etcd and Kubernetes' programs")
	flag.StringVar(&n.bin, "bin", "", "`directory` with helm and images")
	flag.StringVar(&n.cosi, "cosi", "", "`directory` of upstream's module")
	flag.StringVar(&n.cosiClient, "cosi-client", "", "`directory` of the module with its CRDs")
	flag.StringVar(&n.root, "root", "", "`directory` of the repository")
	choice := flag.String("run", ".", "`pattern` of scenarios' names")
	long := flag.Bool("long", false, "go through what takes minutes, too")
	keep := flag.Bool("keep", false, "leave the node running after the scenarios, until it is interrupted")
	certificate := flag.String("certificate", "", "write the contract service's certificate and key into a `directory`, and end")
	flag.Parse()
	if *certificate != "" {
		return makeCertificate(*certificate)
	}
	if slices.Contains([]string{n.dir, n.group, n.kube, n.bin, n.cosi, n.cosiClient, n.root}, "") {
		return errors.New("a directory is missing: start it with make node")
	}
	names, err := regexp.Compile(*choice)
	if err != nil {
		return err
	}
	if os.Getppid() != 1 {
		return errors.New("start it with make node: a node changes what it finds in its namespaces")
	}
	fmt.Println("Starting the node ...")
	if err := n.start(ctx); err != nil {
		return errors.Join(err, n.saveLogs())
	}
	err = walk(ctx, n, names, *long)
	if *keep {
		fmt.Printf("The node runs until you press Ctrl-C: KUBECONFIG=%s\n", n.kubeconfig("admin"))
		<-ctx.Done()
	}
	if err != nil {
		err = errors.Join(err, n.saveLogs())
	}
	return err
}

// saveLogs keeps what the node's parts have printed.
func (n *node) saveLogs() error {
	logs := filepath.Join(n.bin, "logs")
	if err := errors.Join(os.RemoveAll(logs), os.MkdirAll(logs, 0o755)); err != nil {
		return err
	}
	files, err := filepath.Glob(n.path("*.log"))
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(logs, filepath.Base(file)), text, 0o600))
	}
	if pods := n.path("var/log/pods"); err == nil {
		err = os.CopyFS(filepath.Join(logs, "pods"), os.DirFS(pods))
	}
	fmt.Println("What all parts printed is in", logs)
	return err
}
