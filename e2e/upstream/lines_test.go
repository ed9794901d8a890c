package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// line is the result of a spec. Command e2e/specs reads it.
type line struct {
	Name string `json:"name"`
	// Outcome is passed, failed, skipped (by the spec itself), or limit: it took longer than it may.
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Message string  `json:"message,omitempty"`
}

// addLines appends a line to a file for each spec that ends. An interrupted or unselected spec has no line. The call must
// follow the framework's preview of all specs: there all specs pass, and ginkgo drops earlier registrations.
func addLines(file string) {
	if file == "" {
		return
	}
	ginkgo.ReportAfterEach(func(spec ginkgo.SpecReport) {
		l, ok := lineOf(spec)
		if !ok {
			return
		}
		if err := add(file, l); err != nil {
			ginkgo.Fail(err.Error())
		}
	})
}

func lineOf(spec ginkgo.SpecReport) (l line, ok bool) {
	l = line{Name: spec.FullText(), Seconds: spec.RunTime.Round(100 * time.Millisecond).Seconds()}
	switch {
	case spec.LeafNodeType != types.NodeTypeIt:
		return l, false
	case spec.State == types.SpecStatePassed:
		l.Outcome = "passed"
	case spec.State == types.SpecStateTimedout:
		l.Outcome, l.Message = "limit", firstLines(spec.Failure.Message+additional(spec))
	case spec.State == types.SpecStateInterrupted || spec.State == types.SpecStateAborted:
		return l, false
	case spec.State.Is(types.SpecStateFailureStates):
		l.Outcome, l.Message = "failed", firstLines(spec.Failure.Message)
	case spec.State == types.SpecStateSkipped && spec.Failure.Message != "":
		l.Outcome, l.Message = "skipped", firstLines(spec.Failure.Message)
	default:
		return l, false
	}
	return l, true
}

// additional returns the failure of a spec after its timeout, which names the missing condition.
func additional(spec ginkgo.SpecReport) string {
	if len(spec.AdditionalFailures) == 0 {
		return ""
	}
	return ": " + spec.AdditionalFailures[0].Failure.Message
}

// add writes a line at once: several processes add to the file.
func add(file string, l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Close())
}

// list writes the name of every spec. The name of a serial spec is followed by a tab and the word serial.
func list(file string, report ginkgo.Report) error {
	var names []string
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		name := spec.FullText()
		if spec.IsSerial {
			name += "\tserial"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o644)
}

// limitSpecs sets a timeout for each later spec without one.
func limitSpecs(d time.Duration) {
	if d == 0 {
		return
	}
	ginkgo.AddTreeConstructionNodeArgsTransformer(func(node types.NodeType, _ ginkgo.Offset, text string, args []any) (string, []any, []error) {
		if node == types.NodeTypeIt && slices.ContainsFunc(args, takesContext) && !slices.ContainsFunc(args, isLimit) {
			args = append(args, ginkgo.SpecTimeout(d))
		}
		return text, args, nil
	})
}

func isLimit(arg any) bool {
	_, ok := arg.(ginkgo.SpecTimeout)
	return ok
}

var contextType = reflect.TypeFor[context.Context]()

// takesContext reports whether the argument is the function of a spec that can be interrupted.
func takesContext(arg any) bool {
	t := reflect.TypeOf(arg)
	return t != nil && t.Kind() == reflect.Func && t.NumIn() == 1 && t.In(0).Implements(contextType)
}
