package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// State is what was found out about one hop.
type State string

const (
	// OK: it does what it should.
	OK State = "ok"
	// Failed: it does not.
	Failed State = "failed"
	// Skipped: there was no reason to look, or an earlier hop is in the way.
	Skipped State = "skipped"
	// Unknown: it could not be looked at from here, or not with these rights.
	Unknown State = "unknown"
)

// The hops, in the order in which a request would meet trouble.
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
	// HopRoute is the APIRoute of the group-version, if it has one. The hops after it are "backend" and the name of each backend that
	// is not the Service of the APIService.
	HopRoute = "apiroute"
)

// Hop is one step from the APIService to a watch of what it serves.
type Hop struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Found is one sentence.
	Found string `json:"found,omitempty"`
}

// Diagnosis is the first broken hop.
type Diagnosis struct {
	Hop string `json:"hop"`
	// Cause is the sentence that stands in the condition, the Event and the 503, where they say one.
	Cause string `json:"cause"`
	// Found is what was seen, empty when Cause says it all.
	Found string `json:"found,omitempty"`
	// Mend is what to do, first things first: command lines, and remarks that begin with #.
	Mend []string `json:"mend,omitempty"`
}

// Condition is the Available condition as the API server tells it.
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
	// Broken is nil when no hop failed.
	Broken *Diagnosis `json:"broken,omitempty"`
	// Gateway is set when the APIService is behind a gateway. Service is the extension server's then, and the hops on the way to the
	// gateway come first.
	Gateway *Gateway `json:"gateway,omitempty"`
	// FrontDoor is set when the backend is another API server that forwards the request.
	FrontDoor *FrontDoor `json:"frontDoor,omitempty"`
}

// finding is what looking at one hop yields.
type finding struct {
	state State
	found string
	// cause is the sentence of the condition for this fault. Empty: found is it.
	cause string
	fix   []string
	// blocks is that what comes after cannot work.
	blocks bool
}

func ok(found string) finding      { return finding{state: OK, found: found} }
func skipped(found string) finding { return finding{state: Skipped, found: found} }
func unknown(found string) finding { return finding{state: Unknown, found: found} }

// broken is a failure that nothing after it survives.
func broken(found string, fix ...string) finding {
	return finding{state: Failed, found: found, fix: fix, blocks: true}
}

// flawed is a failure beside which the rest may work.
func flawed(found string, fix ...string) finding {
	return finding{state: Failed, found: found, fix: fix}
}

// saying gives a finding the sentence that the condition has for it.
func (f finding) saying(cause string) finding {
	f.cause = cause
	return f
}

// WriteJSON writes the reports for programs.
func WriteJSON(w io.Writer, reports []*Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		APIServices []*Report `json:"apiServices"`
	}{append([]*Report{}, reports...)})
}

// WriteSummary writes a line for each APIService, or that there is none.
func WriteSummary(w io.Writer, reports []*Report) error { return writeSummary(w, reports, false) }

// WriteWideSummary writes the same with the gateway, the condition Available, and how many hops are well.
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

// WriteText writes one report for people: what is broken and what to do about it, then every hop.
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
