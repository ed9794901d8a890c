package monitoring

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// Each panel of the dashboard has a unique title, a description, a unit, and a legend for each query. A panel with a percentile
// names it, and shows seconds.
func TestPanelsHaveTitleDescriptionUnitAndLegend(t *testing.T) {
	data, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			FieldConfig              struct{ Defaults struct{ Unit string } }
			Targets                  []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	titles := map[string]bool{}
	for _, p := range dashboard.Panels {
		if p.Title == "" || titles[p.Title] {
			t.Errorf("title of a panel = %q, want one that no other panel has", p.Title)
		}
		titles[p.Title] = true
		if p.Type == "row" {
			continue
		}
		if unit := p.FieldConfig.Defaults.Unit; unit == "" || !strings.HasSuffix(p.Description, ".") {
			t.Errorf("unit and description of %q = %q, %q; want a unit and sentences", p.Title, unit, p.Description)
		}
		for _, target := range p.Targets {
			if target.LegendFormat == "" {
				t.Errorf("legend of %s in %q is empty, want one", target.Expr, p.Title)
			}
			if quantile := strings.Contains(target.Expr, "histogram_quantile(0.99"); quantile != strings.HasSuffix(p.Title, " p99") || quantile && p.FieldConfig.Defaults.Unit != "s" {
				t.Errorf("title and unit of %s = %q, %q; want p99 and s for a 99th percentile, and only for one", target.Expr, p.Title, p.FieldConfig.Defaults.Unit)
			}
		}
	}
	for _, want := range []string{"Request rate", "Error rate", "Request duration p99", "Requests in flight"} {
		if !titles[want] {
			t.Errorf("the dashboard has no panel %q, want one", want)
		}
	}
}
