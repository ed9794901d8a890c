package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// State is the result of the examination of one hop.
type State string

const (
	// OK is the state of a hop that works.
	OK State = "ok"
	// Failed is the state of a hop that does not work.
	Failed State = "failed"
	// Skipped is the state of a hop that was not examined, because it does not apply or an earlier hop failed.
	Skipped State = "skipped"
	// Unknown is the state of a hop that could not be examined from this machine or with the caller's permissions.
	Unknown State = "unknown"
)

// The hops, in the order in which a request passes them.
const (
	HopRegistration = "apiservice"
	HopService      = "service"
	HopEndpoints    = "endpoints"
	HopDNS          = "dns"
	HopTCP          = "tcp"
	HopTLS          = "tls"
	HopIdentity     = "identity"
	HopDiscovery    = "discovery"
	HopAggregated   = "aggregated discovery"
	HopOpenAPI      = "openapi"
	HopReview       = "review"
	HopList         = "list"
	HopWatch        = "watch"
	// HopRoute is the APIRoute of the group-version, if it has one. The hops after it are named "backend" and the
	// name of each backend that is not the Service of the APIService.
	HopRoute = "apiroute"
)

// Hop is one step on the way from the APIService to a watch of its resources.
type Hop struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Found is one sentence.
	Found string `json:"found,omitempty"`
}

// Diagnosis describes the first broken hop.
type Diagnosis struct {
	Hop string `json:"hop"`
	// Cause is the message in the condition, the Event and the 503, if they contain one.
	Cause string `json:"cause"`
	// Found is the observation, empty if Cause already contains it.
	Found string `json:"found,omitempty"`
	// Mend lists command lines, and remarks that begin with #, the most important first.
	Mend []string `json:"mend,omitempty"`
}

// Condition is the Available condition of the APIService.
type Condition struct {
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Report is the examination of one APIService.
type Report struct {
	APIService string `json:"apiService"`
	// Service is namespace/name:port, empty for a group-version that the API server serves itself.
	Service   string    `json:"service,omitempty"`
	Available Condition `json:"available"`
	Hops      []Hop     `json:"hops"`
	// Broken is nil if no hop failed.
	Broken *Diagnosis `json:"broken,omitempty"`
	// Gateway is set if the APIService is behind a gateway. Service is then the Service of the extension server, and
	// the hops on the way to the gateway come first.
	Gateway *Gateway `json:"gateway,omitempty"`
	// FrontDoor is set if the backend is another API server that forwards the request.
	FrontDoor *FrontDoor `json:"frontDoor,omitempty"`
}

// finding is the result of one hop.
type finding struct {
	state State
	found string
	// cause is the condition's message for this fault. If it is empty, found is the cause.
	cause string
	fix   []string
	// blocks is true if the following hops cannot work.
	blocks bool
}

func ok(found string) finding      { return finding{state: OK, found: found} }
func skipped(found string) finding { return finding{state: Skipped, found: found} }
func unknown(found string) finding { return finding{state: Unknown, found: found} }

// broken returns a failure that prevents the following hops from working.
func broken(found string, fix ...string) finding {
	return finding{state: Failed, found: found, fix: fix, blocks: true}
}

// flawed returns a failure that does not affect the following hops.
func flawed(found string, fix ...string) finding {
	return finding{state: Failed, found: found, fix: fix}
}

// saying sets the condition's message for a finding.
func (f finding) saying(cause string) finding {
	f.cause = cause
	return f
}

// WriteJSON writes the reports as JSON.
func WriteJSON(w io.Writer, reports []*Report, clusters []*ClusterReport) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		APIServices []*Report        `json:"apiServices"`
		Clusters    []*ClusterReport `json:"clusters,omitempty"`
	}{append([]*Report{}, reports...), clusters})
}

// WriteSummary writes one line for each APIService, or a message that the list is empty.
func WriteSummary(w io.Writer, reports []*Report) error { return writeSummary(w, reports, false) }

// WriteWideSummary adds the gateway, the Available condition, and the number of working hops.
func WriteWideSummary(w io.Writer, reports []*Report) error { return writeSummary(w, reports, true) }

func writeSummary(w io.Writer, reports []*Report, wide bool) error {
	if len(reports) == 0 {
		_, err := fmt.Fprintln(w, "No APIService leads to an extension server.")
		return err
	}
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 8, 3, ' ', 0)
	if wide {
		fmt.Fprintln(tw, "APISERVICE\tSERVICE\tGATEWAY\tAVAILABLE\tREASON\tHOPS\tSTATE\tCAUSE")
	} else {
		fmt.Fprintln(tw, "APISERVICE\tSERVICE\tSTATE\tCAUSE")
	}
	for _, r := range reports {
		state, cause := r.state(), ""
		switch {
		case r.Broken != nil:
			cause = r.Broken.Cause
		case r.FrontDoor != nil:
			cause = "leads to another front door: " + r.FrontDoor.describe()
		}
		more := ""
		if wide {
			gateway, well := "-", 0
			if r.Gateway != nil {
				gateway = r.Gateway.Service
			}
			for _, h := range r.Hops {
				if h.State == OK {
					well++
				}
			}
			more = fmt.Sprintf("%s\t%s\t%s\t%d of %d\t", gateway, cmp.Or(r.Available.Status, "-"), cmp.Or(r.Available.Reason, "-"), well, len(r.Hops))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s%s\t%s\n", r.APIService, r.Service, more, state, cause)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) state() string {
	if r.Broken != nil {
		return "broken at " + r.Broken.Hop
	}
	for _, h := range r.Hops {
		if h.State == Unknown {
			return "ok, as far as it can be seen"
		}
	}
	return "ok"
}

// WriteText writes one report as text: the broken hop and its fix, followed by all hops.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.APIService)
	if r.Gateway != nil {
		fmt.Fprintf(&b, " -> gateway %s", r.Gateway.Service)
	}
	if r.Service != "" {
		fmt.Fprintf(&b, " -> %s", r.Service)
	}
	b.WriteString("\n")
	if d := r.Broken; d != nil {
		fmt.Fprintf(&b, "  first broken hop: %s\n", d.Hop)
		if d.Found != "" {
			fmt.Fprintf(&b, "  found: %s\n", d.Found)
		}
		if len(d.Mend) > 0 {
			b.WriteString("  what to do:\n")
		}
		for _, line := range d.Mend {
			fmt.Fprintf(&b, "    %s\n", line)
		}
		fmt.Fprintf(&b, "  cause: %s\n", d.Cause)
	}
	if f := r.FrontDoor; f != nil {
		fmt.Fprintf(&b, "  behind: %s\n", f.describe())
		if r.Broken == nil {
			for _, line := range f.Next {
				fmt.Fprintf(&b, "    %s\n", line)
			}
		}
	}
	if r.Broken != nil || r.FrontDoor != nil {
		b.WriteString("\n")
	}
	for _, h := range r.Hops {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-21s %-8s %s", h.Name, h.State, h.Found), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
