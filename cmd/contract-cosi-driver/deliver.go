package main

import (
	"io/fs"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
)

// defaultDelivery is where the chart has the driver ask.
const defaultDelivery = "unix:///var/lib/cosi-delivery/deliver.sock"

// deliver is the command that writes applications' Secrets in the driver's place.
func deliver() *cobra.Command {
	var d driver.Deliverer
	mode, format, verbosity := fileMode(0o660), textLog, 0
	c := &cobra.Command{
		Use: "deliver", Short: "Write renewed keys into applications' Secrets in the place of a driver that may not, until SIGTERM", Args: arguments,
		Long: "Writes renewed keys into applications' Secrets, under an account of its own, in the place of a driver that has no right to them.\n" +
			"Such a driver has the socket in applicationSecrets.socket of its configuration. Anyone who can connect to it can have keys written.",
		Example: "  contract-cosi-driver deliver --endpoint unix:///var/lib/cosi-delivery/deliver.sock --namespaces blue,green",
	}
	flags := c.Flags()
	flags.StringVar(&d.Socket.Endpoint, "endpoint", defaultDelivery, "the `socket` at which the driver asks, unix:///path.sock")
	flags.Var(&mode, "socket-mode", "permission bits of the socket, in `octal`")
	flags.StringVar(&d.Kubeconfig, "kubeconfig", "", "`file` to reach the API server with; empty is the account of the pod")
	flags.StringSliceVar(&d.Namespaces, "namespaces", nil, "`namespaces` in which it may write Secrets, separated by commas; empty is all of them")
	flags.IntVarP(&verbosity, "v", "v", 0, "log `level`: 0 life cycle and changes, 4 steps")
	flags.Var(&format, "log-format", "how lines of the log are written, `text` or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		d.Socket.Mode = fs.FileMode(mode)
		return d.Run(klog.NewContext(c.Context(), format.logger(verbosity, c.ErrOrStderr())))
	}
	return c
}
