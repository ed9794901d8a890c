package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"portico.dev/deploy/monitoring"
)

// Alerts returns the command that prints the alert rules. It does not contact a server.
func Alerts() *cobra.Command {
	var o alertOptions
	cmd := &cobra.Command{
		Use:   "alerts",
		Short: "Print the alert rules for Prometheus, with links to runbooks",
		Long: `Print the alert rules for aggregator, gateway and extserver, as a file of rules for Prometheus, or as a PrometheusRule for
Prometheus' operator. Each has the annotation runbook, a page of Portico's documentation and the heading in it. With
--runbook-url it has runbook_url too, which Alertmanager and Grafana show as a link.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.print(cmd.OutOrStdout()) },
	}
	cmd.Flags().StringVar(&o.runbookURL, "runbook-url", "", "URL of the directory docs, such as https://wiki.example.com/portico; default no links")
	cmd.Flags().BoolVar(&o.object, "prometheus-rule", false, "print a PrometheusRule manifest")
	return cmd
}

type alertOptions struct {
	runbookURL string
	object     bool
}

const prometheusRule = `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: portico
spec:
`

func (o *alertOptions) print(out io.Writer) error {
	rules := monitoring.Alerts
	if o.runbookURL != "" {
		var err error
		if rules, err = withLinks(rules, o.runbookURL); err != nil {
			return fmt.Errorf("--runbook-url: %w", err)
		}
	}
	if o.object {
		rules = prometheusRule + regexp.MustCompile(`(?m)^.`).ReplaceAllString(rules, "  $0")
	}
	_, err := io.WriteString(out, rules)
	return err
}

// runbookLine matches the runbook annotation of an alert. The file is edited as text to preserve its comments.
var runbookLine = regexp.MustCompile(`(?m)^( +)runbook: (.+)$`)

// withLinks adds the annotation runbook_url to every alert.
func withLinks(rules, base string) (string, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return "", err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("%q is no http or https URL, such as https://wiki.example.com/portico", base)
	case u.Fragment != "":
		return "", errors.New("the heading of a page is put behind it: leave out the part that begins with #")
	}
	return runbookLine.ReplaceAllStringFunc(rules, func(line string) string {
		match := runbookLine.FindStringSubmatch(line)
		return line + "\n" + match[1] + "runbook_url: " + strconv.Quote(strings.TrimSuffix(base, "/")+"/"+match[2])
	}), nil
}
