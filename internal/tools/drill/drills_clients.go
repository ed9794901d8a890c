package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/tools/drill/faulty"
)

// clientDrills returns the drills that observe a fault through kubectl and informers.
func clientDrills() []Drill {
	return []Drill{
		{
			Name: "stored-kind-dead", Title: "the server of a stored, namespaced kind is dead, and kubectl asks for objects of it",
			About: 20 * time.Second, Limit: 2 * time.Minute, Stores: true, Kubectl: true,
			script: kubectlWithTheDead,
			Expect: []Expectation{detectedWithin(5 * time.Second), kubectlNamesTheFailed(), recoversWithin(10 * time.Second)},
		},
		{
			Name: "watch-without-bookmark", Title: "it comes back from a restart as a program that ignores sendInitialEvents",
			About: 15 * time.Second, Limit: 2 * time.Minute, Stores: true,
			script: ignoreInitialEvents,
			Expect: []Expectation{within(10*time.Second, informerSynced, "an informer has the objects"), recoversWithin(10 * time.Second)},
		},
	}
}

// Command is a command that a drill ran, with its result.
type Command struct {
	Args   []string  `json:"args"`
	Start  time.Time `json:"start"`
	Took   Seconds   `json:"seconds"`
	Exit   int       `json:"exit"`
	Output string    `json:"output"`
	// AboutGroup is true if the command sends a request about the group that failed, so that the response can name the APIService.
	AboutGroup bool `json:"aboutGroup,omitempty"`
}

const (
	// kubectlLimit bounds the duration of one command.
	kubectlLimit = 15 * time.Second
	// maxOutput bounds the recorded output of a command.
	maxOutput = 4 << 10
)

// kubectlWithTheDead runs the common verbs. Each command starts with an empty discovery cache, except the last ones,
// whose cache was filled while the server was up. With an empty cache, kubectl requests the resources of all groups,
// does not find the kind, and sends no request about the group.
func kubectlWithTheDead(ctx context.Context, s *Stage) error {
	dir, err := os.MkdirTemp("", "portico-drill-kubectl-")
	if err != nil {
		return fmt.Errorf("directory for kubectl: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary directory is harmless
	resource := s.subject.plural() + "." + s.subject.group
	// With the version in its name, kubectl finds the resource in its cache. Without it, kubectl parses the first
	// label of the group as a version, finds no such resource, and reads the documents of all groups again.
	qualified := s.subject.plural() + ".v1." + s.subject.group
	object := fmt.Sprintf(`{"kind":"Widget","apiVersion":"%s/v1","metadata":{"name":"made","namespace":%q}}`, s.subject.group, s.Namespace)
	if _, err := s.kubectl(ctx, dir+"/filled", "", "get", qualified); err != nil {
		return err
	}
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	commands := []struct {
		cache, input string
		args         []string
		aboutGroup   bool
	}{
		{"1", "", []string{"get", resource}, false},
		{"2", "", []string{"get", resource, "--all-namespaces"}, false},
		{"3", "", []string{"describe", resource, "kept"}, false},
		{"4", object, []string{"create", "-f", "-"}, false},
		{"5", object, []string{"apply", "-f", "-"}, false},
		{"6", "", []string{"delete", resource, "kept"}, false},
		{"7", "", []string{"explain", resource}, false},
		{"8", "", []string{"api-resources", "--api-group=" + s.subject.group}, false},
		{"9", "", []string{"get", "--raw", "/apis/" + s.subject.group}, true},
		{"filled", "", []string{"get", qualified}, true},
		{"filled", "", []string{"delete", qualified, "kept"}, true},
	}
	for _, c := range commands {
		done, err := s.kubectl(ctx, dir+"/"+c.cache, c.input, c.args...)
		if err != nil {
			return err
		}
		done.AboutGroup = c.aboutGroup
		s.record.change(func(h *History) { h.Commands = append(h.Commands, done) })
	}
	return s.mend(ctx)
}

// kubectl runs one command. A nonzero exit status is recorded and is not an error.
func (s *Stage) kubectl(ctx context.Context, cache, input string, args ...string) (Command, error) {
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	given := append([]string{
		"--kubeconfig=" + s.target.Kubeconfig, "--context=" + s.target.Context, "--cache-dir=" + cache, "--namespace=" + s.Namespace,
		"--request-timeout=5s",
	}, args...)
	cmd := exec.CommandContext(ctx, "kubectl", given...)
	var output bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	cmd.WaitDelay = time.Second
	c := Command{Args: append([]string{"kubectl"}, args...), Start: time.Now()}
	err := cmd.Run()
	c.Took, c.Output = Seconds(time.Since(c.Start)), output.String()
	if len(c.Output) > maxOutput {
		c.Output = strings.ToValidUTF8(c.Output[:maxOutput], "") + "..."
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return c, fmt.Errorf("run kubectl: %w", err)
	}
	c.Exit = cmd.ProcessState.ExitCode()
	return c, nil
}

// kubectlNamesTheFailed checks the commands whose requests are about the group. The documents of all groups carry no
// Warning header, because unrelated commands read them too.
func kubectlNamesTheFailed() Expectation {
	return Expectation{Text: "kubectl prints which APIService is unavailable when it asks for the group or for objects of it", check: func(h *History) error {
		asked := false
		for _, c := range h.Commands {
			asked = asked || c.AboutGroup
			if c.AboutGroup && !h.names(c.Output) {
				return fmt.Errorf("%s printed: %.300s", strings.Join(c.Args, " "), c.Output)
			}
		}
		if !asked {
			return errors.New("no command was run")
		}
		return nil
	}}
}

// informerSynced is the measure of an informer's start.
const informerSynced = "an informer has the objects"

func ignoreInitialEvents(ctx context.Context, s *Stage) error {
	if err := s.breakWith(ctx, faulty.Refuse); err != nil {
		return err
	}
	if err := s.detect(ctx, 20*time.Second); err != nil {
		return err
	}
	if err := s.runFault(faulty.NoInitialEvents); err != nil {
		return err
	}
	s.progress("server restarted; it ignores sendInitialEvents")
	back := func(ctx context.Context) bool {
		return s.get(ctx, s.subject.collection(s.Namespace), &struct{}{}) == nil
	}
	if _, _, err := s.until(ctx, recoverLimit, back); err != nil {
		return err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, informerLimit)
	defer cancel()
	synced := s.informer(bounded)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.record.measured(Measure{Name: informerSynced, Seconds: Seconds(time.Since(began)), Never: !synced})
	return s.mend(ctx)
}

// informerLimit bounds the wait for an informer.
const informerLimit = 20 * time.Second

// informer starts like client-go's informers since 1.35, with a watch that begins with the existing objects. If the
// server refuses the watch, it lists. It reports whether it received the objects before ctx ended.
func (s *Stage) informer(ctx context.Context) bool {
	path := s.traffic.base + s.subject.collection(s.Namespace)
	query := "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path+query, nil)
	if err != nil {
		return false
	}
	req.Header.Set("Accept", jsonType)
	resp, err := s.traffic.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxEvent)) // the list determines the result
		return s.get(ctx, s.subject.collection(s.Namespace), &struct{}{}) == nil
	}
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, maxEvent)
	for events.Scan() {
		var e struct {
			Type   string
			Object struct{ Metadata metav1.ObjectMeta }
		}
		if json.Unmarshal(events.Bytes(), &e) == nil && e.Type == "BOOKMARK" &&
			e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			return true
		}
	}
	return false
}

// verdictEndsWaiting checks that requests pending when the condition turned are answered within limit.
func verdictEndsWaiting(limit time.Duration) Expectation {
	return Expectation{Text: fmt.Sprintf("who waits when the condition turns is answered within %s", limit), check: func(h *History) error {
		at, came := h.Detected()
		if !came {
			return nil // detectedWithin reports this failure
		}
		for _, r := range h.requestsTo(Subject, "get", "list", "create", "delete") {
			end := r.Start.Add(r.Took)
			if !r.Start.Before(h.Broken) && r.Start.Before(at) && end.After(at.Add(limit)) && !h.excused(r) {
				return fmt.Errorf("a %s waited for another %s", r.Verb, end.Sub(at).Round(time.Millisecond))
			}
		}
		return nil
	}}
}
