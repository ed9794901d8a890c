//go:build prometheus

package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"portico.dev/e2e/programs"
)

// prometheus is a running server.
type prometheus struct {
	address string
	client  *http.Client
	process *programs.Process
	// settled: a wait for a series has timed out once, so no new series is expected.
	settled bool
}

func startPrometheus(t *testing.T, dir, kubeconfig string, at places) *prometheus {
	t.Helper()
	if err := programs.Build(binaries, "prometheus"); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(scrapeConfig(t, dir, kubeconfig, at)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + unusedPort(t)
	process, err := startProcess("prometheus", dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, "prometheus",
		"--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "tsdb"), "--web.listen-address", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Finish(t)
		process.Show(t)
	})
	p := &prometheus{address: address, process: process, client: &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(p.client.CloseIdleConnections)
	if err := programs.Poll(process.Exited(), p.targetsAreUp); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask reads the data of an answer of the API.
func (p *prometheus) ask(path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), programs.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s %v: %s %s %w", path, query, response.Status, answer.Error, errors.Join(err))
	}
	return json.Unmarshal(answer.Data, into)
}

// targetsAreUp returns nil when all jobs were scraped, so that the configured credentials are sufficient.
func (p *prometheus) targetsAreUp() error {
	var targets struct {
		ActiveTargets []struct{ ScrapePool, Health, LastError string }
	}
	if err := p.ask("targets", nil, &targets); err != nil {
		return err
	}
	up := 0
	for _, t := range targets.ActiveTargets {
		if t.Health != "up" {
			return fmt.Errorf("%s is %s: %s", t.ScrapePool, t.Health, t.LastError)
		}
		up++
	}
	if up != 4 {
		return fmt.Errorf("%d targets are up, want 4: two front doors, an extension server and a gateway", up)
	}
	return nil
}

// rulesAreWell returns nil when every rule was evaluated without an error.
func (p *prometheus) rulesAreWell() error {
	var found struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.ask("rules", nil, &found); err != nil {
		return err
	}
	if len(found.Groups) == 0 {
		return errors.New("no rules were read")
	}
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	return nil
}

// alertsAre returns nil when all given alerts are in one of the states, and were evaluated at the given time or later.
func (p *prometheus) alertsAre(names []string, evaluated time.Time, states ...string) error {
	var found struct {
		Groups []struct {
			Rules []struct {
				Name, State    string
				LastEvaluation time.Time
			}
		}
	}
	if err := p.ask("rules", url.Values{"rule_name[]": names}, &found); err != nil {
		return err
	}
	seen := 0
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			if !slices.Contains(states, r.State) || r.LastEvaluation.Before(evaluated) {
				return fmt.Errorf("alert %s is %s at %s, want one of %v at %s", r.Name, r.State, r.LastEvaluation, states, evaluated)
			}
			seen++
		}
	}
	if seen != len(names) {
		return fmt.Errorf("%d of the rules %v were found", seen, names)
	}
	return nil
}

// node is a part of an expression, as Prometheus takes it apart.
type node struct {
	Type     string
	Name     string
	Matchers []struct{ Name, Type, Value string }
	Grouping []string
	Without  bool
	Func     struct{ Name string }
	Expr     *node
	LHS, RHS *node
	Args     []*node
}

// checkExpression checks every selector in an expression against the scraped series, and returns the labels of the result.
func (p *prometheus) checkExpression(t *testing.T, expr string) sets.Set[string] {
	t.Helper()
	var root node
	if err := p.ask("parse_query", url.Values{"query": {expr}}, &root); err != nil {
		t.Fatal(err)
	}
	selectors := 0
	labels, err := p.labels(&root, &selectors)
	if err != nil {
		t.Error(err)
	}
	if selectors == 0 {
		t.Errorf("selectors in %s = none, want at least one", expr)
	}
	return labels
}

// labels returns the labels of the result of an expression.
func (p *prometheus) labels(n *node, selectors *int) (sets.Set[string], error) {
	switch {
	case n == nil:
		return nil, nil
	case n.Type == "vectorSelector" || n.Type == "matrixSelector":
		*selectors++
		return p.selected(n)
	case n.Type == "aggregation":
		below, err := p.labels(n.Expr, selectors)
		grouping := sets.New(n.Grouping...)
		if missing := grouping.Difference(below); err == nil && len(missing) > 0 {
			err = fmt.Errorf("grouped by %v; there are %v", sets.List(missing), sets.List(below))
		}
		return grouping, err
	case n.Type == "call":
		var of sets.Set[string]
		for _, arg := range n.Args {
			below, err := p.labels(arg, selectors)
			if err != nil {
				return nil, err
			}
			of = of.Union(below)
		}
		if n.Func.Name == "histogram_quantile" {
			if !of.Has("le") {
				return nil, errors.New("a quantile of what has no buckets")
			}
			of.Delete("le")
		}
		return of, nil
	case n.Type == "binaryExpr":
		left, err := p.labels(n.LHS, selectors)
		if err != nil {
			return nil, err
		}
		right, err := p.labels(n.RHS, selectors)
		if left == nil { // a number, or time()
			return right, err
		}
		return left, err
	}
	return p.labels(n.Expr, selectors)
}

// free are labels whose values depend on past requests: a selector may have a value that does not exist now.
var free = sets.New("code", "verb")

// selected finds the series that a selector means, and compares its labels with theirs.
func (p *prometheus) selected(n *node) (sets.Set[string], error) {
	var match []string
	for _, m := range n.Matchers {
		if !free.Has(m.Name) && m.Name != "__name__" {
			match = append(match, fmt.Sprintf("%s%s%q", m.Name, m.Type, m.Value))
		}
	}
	selector := n.Name + "{" + strings.Join(match, ",") + "}"
	var found []string
	look := func() error {
		if err := p.ask("labels", url.Values{"match[]": {selector}}, &found); err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("no series %s", selector)
		}
		return nil
	}
	err := look()
	if err != nil && !p.settled { // a new series is scraped within a second
		err = programs.Poll(inAMinute(), look)
	}
	if err != nil {
		p.settled = true
		return nil, err
	}
	labels := sets.New(found...)
	for _, m := range n.Matchers {
		if !labels.Has(m.Name) {
			return nil, fmt.Errorf("%s has no label %s, only %v", n.Name, m.Name, sets.List(labels))
		}
	}
	return labels, nil
}

// inAMinute is closed then.
func inAMinute() <-chan struct{} {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}
