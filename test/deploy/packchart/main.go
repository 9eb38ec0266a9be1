// Packchart packs the chart as helm package does.
//
//	packchart CHART VERSION DIR
package main

import (
	"errors"
	"fmt"
	"os"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packchart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: packchart CHART VERSION DIR")
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = args[1], args[1]
	if err := chart.Validate(); err != nil {
		return err
	}
	_, err = chartutil.Save(chart, args[2])
	return err
}
