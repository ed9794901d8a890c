package upstream

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"k8s.io/kubernetes/test/e2e/framework"
	"sigs.k8s.io/yaml"
)

// result is the file that a run leaves. A test of the main module reads it too.
type result struct {
	// Suite is the module and version of the specs, Libraries the version of the k8s.io modules they were built with.
	Suite     string `json:"suite"`
	Libraries string `json:"libraries"`
	// Server is the server's version at /version.
	Server string `json:"server"`
	// Date is the day of the run.
	Date string `json:"date"`
	// Conformance is how many Conformance specs upstream has, NeedNoNode how many of them need no node.
	Conformance int `json:"conformance"`
	NeedNoNode  int `json:"needNoNode"`
	// Passed and Failed count the Conformance specs of the run, AlsoPassed and AlsoFailed the remaining ones.
	Passed     int `json:"passed"`
	Failed     int `json:"failed"`
	AlsoPassed int `json:"alsoPassed"`
	AlsoFailed int `json:"alsoFailed"`
	// Specs are the specs of the run, by name.
	Specs []outcome `json:"specs"`
}

type outcome struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // passed, failed or skipped (by the spec itself)
	Message string `json:"message,omitempty"`
}

const conformanceMark = "[Conformance]"

func record(file string, s *selection, report ginkgo.Report) error {
	r := result{
		Date:        report.StartTime.UTC().Format("2006-01-02"),
		Conformance: len(s.conformance), NeedNoNode: s.needNoNode(),
	}
	var err error
	if r.Suite, r.Libraries, err = versions("go.mod"); err != nil {
		return err
	}
	client, err := framework.LoadClientset()
	if err != nil {
		return err
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	r.Server = v.GitVersion
	for _, spec := range report.SpecReports {
		r.add(spec)
	}
	slices.SortFunc(r.Specs, func(a, b outcome) int { return cmp.Compare(a.Name, b.Name) })
	data, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

var (
	suiteLine   = regexp.MustCompile(`(?m)^\s*(?:require )?(k8s\.io/kubernetes v\S+)`)
	libraryLine = regexp.MustCompile(`(?m)^\s*k8s\.io/client-go => k8s\.io/client-go (v\S+)`)
)

// versions returns the versions in go.mod: a test binary does not contain its modules.
func versions(file string) (suite, libraries string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	s, l := suiteLine.FindSubmatch(data), libraryLine.FindSubmatch(data)
	if s == nil || l == nil {
		return "", "", fmt.Errorf("%s does not pin k8s.io/kubernetes and k8s.io/client-go", file)
	}
	return string(s[1]), string(l[1]), nil
}

func (r *result) add(spec types.SpecReport) {
	if spec.LeafNodeType != types.NodeTypeIt {
		return
	}
	o := outcome{Name: spec.FullText()}
	passed, failed := &r.Passed, &r.Failed
	if !strings.Contains(o.Name, conformanceMark) {
		passed, failed = &r.AlsoPassed, &r.AlsoFailed
	}
	switch {
	case spec.State == types.SpecStatePassed:
		o.Outcome = "passed"
		*passed++
	case spec.State.Is(types.SpecStateFailureStates):
		o.Outcome = "failed"
		*failed++
		o.Message = firstLines(spec.Failure.Message)
	case spec.State == types.SpecStateSkipped && spec.Failure.Message != "":
		o.Outcome = "skipped"
		o.Message = firstLines(spec.Failure.Message)
	default:
		return // not selected
	}
	r.Specs = append(r.Specs, o)
}

// firstLines keeps a message readable: gomega prints whole objects.
func firstLines(message string) string {
	const most = 300
	if len(message) > most {
		message = message[:most]
	}
	return strings.ToValidUTF8(strings.TrimSpace(message), "")
}
