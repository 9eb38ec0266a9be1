package alerts

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// Every panel of the dashboard has data once what it shows has happened at a
// driver. The series are the driver's own: test/docs writes them.
func TestDashboard(t *testing.T) {
	t.Parallel()
	exposed, err := os.ReadFile("testdata/series.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := series{}
	for line := range strings.Lines(string(exposed)) {
		metric := strings.TrimSpace(line)
		const scraped = `namespace="s",pod="a"`
		if name, labels, ok := strings.Cut(metric, "{"); ok {
			metric = name + "{" + scraped + "," + labels
		} else {
			metric += "{" + scraped + "}"
		}
		all.add(t, metric+" 0+1x60")
	}
	text, err := os.ReadFile("../../deploy/chart/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || len(dashboard.Panels) < 8 {
		t.Fatalf("%d panels: %v", len(dashboard.Panels), err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: syntax})
	grafana := strings.NewReplacer("$namespace", "s", "$__rate_interval", "5m")
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			t.Run(p.Title, func(t *testing.T) {
				t.Parallel()
				if err := hasData(t, engine, all, grafana.Replace(target.Expr)); err != nil {
					t.Errorf("%s: %v", target.Expr, err)
				}
			})
		}
	}
}

// hasData runs a query over an hour.
func hasData(t *testing.T, engine *promql.Engine, all series, expr string) error {
	t.Helper()
	q, err := engine.NewRangeQuery(t.Context(), all, nil, expr, time.Unix(0, 0).Add(10*scrape), time.Unix(0, 0).Add(60*scrape), scrape)
	if err != nil {
		return err
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		return err
	}
	for _, s := range matrix {
		for _, p := range s.Floats {
			if !math.IsNaN(p.F) {
				return nil
			}
		}
	}
	return fmt.Errorf("%d series, none with data", len(matrix))
}
